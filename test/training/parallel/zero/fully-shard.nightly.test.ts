import { describeSteps, isUsual } from './support/fully-shard.ts'

describeSteps((stage, job) => !isUsual(stage, job))
