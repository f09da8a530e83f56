import { jest } from '@jest/globals'
import { killLeftovers } from '../launcher/support/tsrun.ts'
import { describeFailedCalls, describeKilled, engines } from './support/ranks-in-a-group.ts'

jest.setTimeout(120_000)
afterEach(killLeftovers)

describeKilled(engines.slice(1))
describeFailedCalls(['awaited', 'object'])
