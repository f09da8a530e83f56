import { jest } from '@jest/globals'
import { describeCopies, describeMemory } from './support/devices.ts'

jest.setTimeout(120_000)

describeCopies('tensorflow')
describeMemory('tensorflow')
describeCopies('webgpu')
