import { jest } from '@jest/globals'
import { describeCheckpoints, otherTransfers } from './support/checkpoints.ts'

jest.setTimeout(120_000)

describeCheckpoints(otherTransfers)
