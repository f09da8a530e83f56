import { jest } from '@jest/globals'
import { describeFaultyPrograms } from './support/faulty-programs.ts'

jest.setTimeout(240_000)

describeFaultyPrograms(120)
