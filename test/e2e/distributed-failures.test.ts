import { jest } from '@jest/globals'
import { endJobs } from '../distributed/support/job.ts'
import { usualWorlds } from '../distributed/support/worlds.ts'
import { describeFailures, usualFailures } from './support/failures.ts'

jest.setTimeout(120_000)
afterEach(endJobs)

describeFailures(usualWorlds, usualFailures)
