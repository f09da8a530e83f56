import { jest } from '@jest/globals'
import { describeLayouts, isUsual } from './support/layouts.ts'

jest.setTimeout(120_000)

describeLayouts((problem, layout) => !isUsual(problem, layout))
