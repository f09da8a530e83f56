import { jest } from '@jest/globals'
import { describeFaultyPrograms } from './support/faulty-programs.ts'

jest.setTimeout(240_000)

// More of them are in faulty-programs.slow.test.ts.
describeFaultyPrograms(30)
