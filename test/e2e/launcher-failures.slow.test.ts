import { jest } from '@jest/globals'
import { killLeftovers } from '../launcher/support/tsrun.ts'
import { describeDeaths, otherDeaths } from './support/deaths.ts'

jest.setTimeout(120_000)
afterEach(killLeftovers)

describeDeaths(otherDeaths)
