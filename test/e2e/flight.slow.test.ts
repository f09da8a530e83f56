import { jest } from '@jest/globals'
import { describeNeverEntering } from './support/flight.ts'

jest.setTimeout(120_000)

describeNeverEntering(['loop'])
