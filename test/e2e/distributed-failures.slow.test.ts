import { endJobs } from '../distributed/support/job.ts'
import { otherWorlds } from '../distributed/support/worlds.ts'
import { describeFailures, usualFailures } from './support/failures.ts'

afterEach(endJobs)

// All cases are in distributed-failures.nightly.test.ts.
describeFailures(otherWorlds, usualFailures)
