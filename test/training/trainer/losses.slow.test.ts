import { jest } from '@jest/globals'
import { describeLosses, isUsual } from './support/losses.ts'

jest.setTimeout(120_000)

describeLosses((problem, layout) => !isUsual(problem, layout))
