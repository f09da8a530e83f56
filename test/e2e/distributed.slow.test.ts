import { jest } from '@jest/globals'
import { endJobs } from '../distributed/support/job.ts'
import { otherWorlds, worlds } from '../distributed/support/worlds.ts'
import { describeGrowth, describeProcesses } from './support/processes.ts'

jest.setTimeout(120_000)
afterEach(endJobs)

describeProcesses(otherWorlds)
describeGrowth(worlds)
