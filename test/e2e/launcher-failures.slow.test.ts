import { killLeftovers } from '../launcher/support/tsrun.ts'
import { describeDeaths, otherDeaths } from './support/deaths.ts'

afterEach(killLeftovers)

describeDeaths(otherDeaths)
