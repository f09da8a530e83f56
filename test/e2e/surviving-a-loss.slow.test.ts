import { jest } from '@jest/globals'
import { endJobs } from '../distributed/support/job.ts'
import { otherWorlds, worlds } from '../distributed/support/worlds.ts'
import { describeSurviving, describeSurvivingTwice } from './support/surviving.ts'

jest.setTimeout(120_000)
afterEach(endJobs)

describeSurviving(otherWorlds)
describeSurvivingTwice(worlds)
