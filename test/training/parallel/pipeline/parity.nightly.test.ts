import { configurations } from '../support/configurations.ts'
import { describeParity } from './support/parity.ts'

describeParity(configurations, 20)
