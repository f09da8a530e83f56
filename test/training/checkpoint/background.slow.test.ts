import { jest } from '@jest/globals'
import { describeBackground, isUsual } from './support/background.ts'

jest.setTimeout(120_000)

describeBackground((backend, layout) => !isUsual(backend, layout))
