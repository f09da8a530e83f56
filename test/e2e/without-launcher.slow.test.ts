import { jest } from '@jest/globals'
import { endJobs } from '../distributed/support/job.ts'
import { describeStoreInRank0, engines } from './support/without-launcher.ts'

jest.setTimeout(120_000)
afterEach(endJobs)

describeStoreInRank0(engines)
