import { killLeftovers } from '../launcher/support/tsrun.ts'
import { bindings, describeStacks } from './support/stacks.ts'

afterEach(killLeftovers)

describeStacks(bindings.slice(1))
