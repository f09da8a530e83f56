import { describeCopies, describeMemory } from './support/devices.ts'

describeCopies('tensorflow')
describeMemory('tensorflow')
describeCopies('webgpu')
