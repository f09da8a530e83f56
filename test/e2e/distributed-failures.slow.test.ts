import { jest } from '@jest/globals'
import { endJobs } from '../distributed/support/job.ts'
import { worlds } from '../distributed/support/worlds.ts'
import { describeFailures } from './support/failures.ts'

jest.setTimeout(120_000)
afterEach(endJobs)

describeFailures(worlds)
