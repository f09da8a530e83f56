import { endJobs } from '../distributed/support/job.ts'
import { describeStoreInRank0, engines } from './support/without-launcher.ts'

afterEach(endJobs)

describeStoreInRank0(engines)
