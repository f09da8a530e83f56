import { jest } from '@jest/globals'
import { otherConfigurations } from '../support/configurations.ts'
import { describeParity } from './support/parity.ts'

jest.setTimeout(60_000)

describeParity(otherConfigurations, 20)
