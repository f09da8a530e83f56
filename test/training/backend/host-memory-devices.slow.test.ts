import { jest } from '@jest/globals'
import { describeMemory } from './support/devices.ts'

jest.setTimeout(300_000)

// a software driver takes a while for as many copies
describeMemory('webgpu')
