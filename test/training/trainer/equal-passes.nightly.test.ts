import { describeEqualPasses, isUsual } from './support/equal-passes.ts'

describeEqualPasses((size, layout) => !isUsual(size, layout))
