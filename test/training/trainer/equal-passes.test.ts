import { describeEqualPasses, isUsual } from './support/equal-passes.ts'

describeEqualPasses(isUsual)
