import { describeMesh } from './support/mesh.ts'

// Pairs of two kinds are in mesh.slow.test.ts.
describeMesh([
  ['tcp', 'tcp'],
  ['node', 'node'],
])
