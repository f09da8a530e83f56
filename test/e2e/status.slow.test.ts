import { jest } from '@jest/globals'
import { killLeftovers } from '../launcher/support/tsrun.ts'
import { describePs, writers } from './support/status.ts'

jest.setTimeout(120_000)
afterEach(killLeftovers)

describePs(writers.slice(1))
