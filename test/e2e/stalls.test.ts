import { jest } from '@jest/globals'
import { killLeftovers } from '../launcher/support/tsrun.ts'
import { describeStalls, usualStalls } from './support/stalls.ts'

jest.setTimeout(120_000)
afterEach(killLeftovers)

describeStalls(usualStalls)
