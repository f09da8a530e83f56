import { describeLayouts, isUsual } from './support/layouts.ts'

describeLayouts((problem, layout) => !isUsual(problem, layout))
