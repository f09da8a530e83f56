import { describeBackground, isUsual } from './support/background.ts'

describeBackground((backend, layout) => !isUsual(backend, layout))
