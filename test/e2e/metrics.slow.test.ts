import { jest } from '@jest/globals'
import { killLeftovers } from '../launcher/support/tsrun.ts'
import { describeCounting, writers } from './support/metrics.ts'

jest.setTimeout(120_000)
afterEach(killLeftovers)

describeCounting(writers.slice(1))
