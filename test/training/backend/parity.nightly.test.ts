import { jest } from '@jest/globals'
import { describeBackends } from './support/backends.ts'

jest.setTimeout(300_000)

describeBackends('webgpu')
