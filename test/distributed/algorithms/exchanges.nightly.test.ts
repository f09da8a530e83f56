import { jest } from '@jest/globals'
import { describeExchanges } from './support/exchanges.ts'

jest.setTimeout(300_000)

// The other sizes are in exchanges.test.ts.
describeExchanges([2, 4, 5, 6, 7, 8, 9])
