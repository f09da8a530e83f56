import { endJobs } from '../distributed/support/job.ts'
import { otherWorlds, worlds } from '../distributed/support/worlds.ts'
import { describeSurviving, describeSurvivingTwice } from './support/surviving.ts'

afterEach(endJobs)

describeSurviving(otherWorlds)
describeSurvivingTwice(worlds)
