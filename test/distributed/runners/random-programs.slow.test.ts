import { jest } from '@jest/globals'
import { describeRandomPrograms } from './support/random-programs.ts'

jest.setTimeout(240_000)

describeRandomPrograms(120, 30)
