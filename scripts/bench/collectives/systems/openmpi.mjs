import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { runToEnd } from '../../child.mjs'

const source = fileURLToPath(new URL('../ranks/openmpi-rank.c', import.meta.url))

const transports = /** @type {const} */ ([
  { transport: 'tcp', btl: ['btl', 'tcp,self'] },
  { transport: 'shared-memory', btl: ['btl', 'vader,self'] },
])

/**
 * Open MPI, where `mpicc` and `mpirun` are on the PATH: over TCP and over shared memory.
 *
 * @param {string} folder - for the compiled program
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {Promise<import('./system.mjs').Found>}
 */
export async function findOpenMpi(folder, env = process.env) {
  const version = await runToEnd('mpirun', ['--version'], { env })
  if (!version.output.includes('Open MPI')) {
    return { systems: [], skipped: 'no Open MPI (no mpirun of Open MPI on the PATH)' }
  }
  const program = join(folder, 'openmpi-rank')
  const compiled = await runToEnd('mpicc', ['-O3', '-o', program, source], { env })
  if (!compiled.ok) {
    const why = compiled.output.trimEnd().split('\n').at(-1) || compiled.reason
    return { systems: [], skipped: `no Open MPI (mpicc: ${why})` }
  }
  return {
    systems: transports.map((choice) => openMpi(program, choice)),
    version: /Open MPI\) (\S+)/.exec(version.output)?.[1] ?? 'unknown',
  }
}

/**
 * @param {string} program
 * @param {(typeof transports)[number]} choice
 * @returns {import('./system.mjs').System}
 */
function openMpi(program, { transport, btl }) {
  const component = ['--mca', 'pml', 'ob1', '--mca', ...btl]
  const loopback = ['--mca', 'btl_tcp_if_include', '127.0.0.1/8']
  const placement = ['--allow-run-as-root', '--oversubscribe', '--bind-to', 'none']
  return {
    system: 'openmpi',
    transport,
    engine: null,
    commandLine: (ranks, output, steps) => ({
      command: 'mpirun',
      args: [...placement, ...component, ...loopback]
        .concat('-n', String(ranks), program, output)
        .concat(steps),
    }),
  }
}
