import { jest } from '@jest/globals'
import { describeMismatches } from './support/mismatches.ts'

jest.setTimeout(120_000)

describeMismatches([2, 3, 4], 12)
