import { endJobs } from '../distributed/support/job.ts'
import { worlds } from '../distributed/support/worlds.ts'
import { describeFailures } from './support/failures.ts'

afterEach(endJobs)

describeFailures(worlds)
