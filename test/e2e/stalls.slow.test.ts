import { killLeftovers } from '../launcher/support/tsrun.ts'
import { describeStalls, usualStalls } from './support/stalls.ts'

afterEach(killLeftovers)

describeStalls(usualStalls)
