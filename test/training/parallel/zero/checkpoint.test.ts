import { jest } from '@jest/globals'
import { describeCheckpoints, usualTransfers } from './support/checkpoints.ts'

jest.setTimeout(120_000)

describeCheckpoints(usualTransfers)
