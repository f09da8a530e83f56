import { endJobs } from '../distributed/support/job.ts'
import { worlds } from '../distributed/support/worlds.ts'
import { describeGrowth } from './support/processes.ts'

afterEach(endJobs)

describeGrowth(worlds)
