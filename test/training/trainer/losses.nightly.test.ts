import { describeLosses, isUsual } from './support/losses.ts'

describeLosses((problem, layout) => !isUsual(problem, layout))
