import { killLeftovers } from '../launcher/support/tsrun.ts'
import { describeCounting, writers } from './support/metrics.ts'

afterEach(killLeftovers)

describeCounting(writers.slice(1))
