import { describeCheckpoints, otherTransfers } from './support/checkpoints.ts'

describeCheckpoints(otherTransfers)
