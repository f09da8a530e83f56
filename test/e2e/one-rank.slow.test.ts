import { jest } from '@jest/globals'
import { killLeftovers } from '../launcher/support/tsrun.ts'
import { bindings, describeStacks } from './support/stacks.ts'

jest.setTimeout(120_000)
afterEach(killLeftovers)

describeStacks(bindings.slice(1))
