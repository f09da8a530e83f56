import { jest } from '@jest/globals'
import { describeCollectives } from './support/collectives.ts'

jest.setTimeout(120_000)

// The other sizes are in collectives.test.ts.
describeCollectives([2, 5, 6, 7, 8, 9])
