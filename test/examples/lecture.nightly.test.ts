import { jest } from '@jest/globals'
import { killLeftovers } from '../launcher/support/tsrun.ts'
import { describeLecture } from './lecture.ts'

jest.setTimeout(240_000)
afterEach(killLeftovers)

// Most of the time is spent on drawing the weights of these sizes.
describeLecture('lecture', [2], [2])
