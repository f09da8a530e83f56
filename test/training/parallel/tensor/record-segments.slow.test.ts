import { jest } from '@jest/globals'
import { killLeftovers } from '../../../launcher/support/tsrun.ts'
import { describeSegments } from './support/segments.ts'

jest.setTimeout(120_000)
afterEach(killLeftovers)

describeSegments(4)
