import { jest } from '@jest/globals'
import { killLeftovers } from '../launcher/support/tsrun.ts'
import { describeEncrypted } from './support/encrypted.ts'

jest.setTimeout(120_000)
afterEach(killLeftovers)

describeEncrypted([['--tls']])
