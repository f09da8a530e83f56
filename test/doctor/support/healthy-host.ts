import type { Facts } from '../../internals/doctor.ts'

const GIB = 2 ** 30

/** A host where everything is as it should be. */
export const healthy: Facts = {
  node: { version: 'v20.19.0', system: 'linux-x64' },
  native: { available: true },
  sharedMemory: { problem: undefined, size: 8 * GIB, free: 7 * GIB },
  cores: { allowed: 4, all: 4, quota: undefined, usable: 4 },
  limits: {
    'pids.max of the cgroup': Infinity,
    'ulimit -u': 63_000,
    'ulimit -v': Infinity,
    'open files': Infinity,
  },
  memory: { size: 16 * GIB, copied: 12.34e9 },
  backends: [{ name: 'wasm', works: true, version: 'TensorFlow.js 4', device: 'CPU', threads: 1 }],
  tensorflow: { manifest: undefined },
  blas: { library: 'libblas.so', origin: 'the system', kernels: 'Zen', problems: [] },
  gpus: { nvidia: [], topology: [], problem: undefined },
}
