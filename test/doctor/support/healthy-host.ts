import type { Facts } from '../../internals/doctor.ts'
import { version } from '../../internals/launcher/job.ts'

const GIB = 2 ** 30

/** A host where everything is as it should be. */
export const healthy: Facts = {
  observe: { version, fits: true, path: '' },
  node: {
    ...{ version: 'v20.19.0', system: 'linux-x64', nodeOptions: '', typescript: false },
    tsx: '/p/node_modules/tsx/index.js',
  },
  npm: { version: '10.8.2', ignoresScripts: false },
  native: { available: true },
  sharedMemory: { problem: undefined, size: 8 * GIB, free: 7 * GIB },
  autogroups: false,
  openFiles: 4096,
  cores: { allowed: 4, all: 4, quota: undefined, usable: 4 },
  limits: { 'pids.max of the cgroup': Infinity, 'ulimit -u': 63_000, 'ulimit -v': Infinity },
  memory: { size: 16 * GIB, copied: 12.34e9 },
  backends: [{ name: 'wasm', works: true, version: 'TensorFlow.js 4', device: 'CPU', threads: 1 }],
  tensorflow: { manifest: undefined },
  blas: { library: 'libblas.so', origin: 'the system', kernels: 'Zen', problems: [] },
  gpus: { nvidia: [], topology: [], problem: undefined, uses: undefined, misnamed: undefined },
  mpi: { libraries: [], mpirun: undefined },
}
