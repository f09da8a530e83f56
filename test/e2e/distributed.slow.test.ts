import { jest } from '@jest/globals'
import { endJobs } from '../distributed/support/job.ts'
import { otherWorlds } from '../distributed/support/worlds.ts'
import { describeProcesses } from './support/processes.ts'

jest.setTimeout(120_000)
afterEach(endJobs)

describeProcesses(otherWorlds)
