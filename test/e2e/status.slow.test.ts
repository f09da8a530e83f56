import { killLeftovers } from '../launcher/support/tsrun.ts'
import { describePs, writers } from './support/status.ts'

afterEach(killLeftovers)

describePs(writers.slice(1))
