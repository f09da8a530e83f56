import { endJobs } from '../distributed/support/job.ts'
import { usualWorlds } from '../distributed/support/worlds.ts'
import { describeFailures, usualFailures } from './support/failures.ts'

afterEach(endJobs)

describeFailures(usualWorlds, usualFailures)
