import { jest } from '@jest/globals'
import { configurations } from '../support/configurations.ts'
import { describeParity } from './support/parity.ts'

jest.setTimeout(120_000)

describeParity(configurations, 20)
