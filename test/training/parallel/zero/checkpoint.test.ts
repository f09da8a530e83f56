import { describeCheckpoints, usualTransfers } from './support/checkpoints.ts'

describeCheckpoints(usualTransfers)
