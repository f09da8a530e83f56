import { jest } from '@jest/globals'
import { describeSteps, isUsual } from './support/fully-shard.ts'

jest.setTimeout(120_000)

describeSteps((stage, job) => !isUsual(stage, job))
