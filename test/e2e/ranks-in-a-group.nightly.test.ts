import { killLeftovers } from '../launcher/support/tsrun.ts'
import { describeFailedCalls, describeKilled, engines } from './support/ranks-in-a-group.ts'

afterEach(killLeftovers)

describeKilled(engines.slice(1))
describeFailedCalls(['awaited', 'object'])
