import { jest } from '@jest/globals'
import { describeMesh } from './support/mesh.ts'

jest.setTimeout(120_000)

// Pairs of two kinds are in mesh.test.ts.
describeMesh([
  ['tcp', 'tcp'],
  ['node', 'node'],
])
