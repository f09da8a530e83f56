import { killLeftovers } from '../launcher/support/tsrun.ts'
import { describeStalls, otherStalls } from './support/stalls.ts'

afterEach(killLeftovers)

describeStalls(otherStalls)
