import { killLeftovers } from '../launcher/support/tsrun.ts'
import { describeEncrypted } from './support/encrypted.ts'

afterEach(killLeftovers)

describeEncrypted([['--tls']])
