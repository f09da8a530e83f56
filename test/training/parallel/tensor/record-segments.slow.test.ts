import { killLeftovers } from '../../../launcher/support/tsrun.ts'
import { describeSegments } from './support/segments.ts'

afterEach(killLeftovers)

describeSegments(4)
