import { jest } from '@jest/globals'
import { usualConfigurations } from '../support/configurations.ts'
import { describeParity } from './support/parity.ts'

jest.setTimeout(60_000)

describeParity(usualConfigurations, 4)
