import { fileURLToPath } from 'node:url'
import { findTorchPython } from '../../torch.mjs'

const rank = fileURLToPath(new URL('../ranks/torch_rank.py', import.meta.url))

const launch = ['-m', 'torch.distributed.run', '--standalone', '--local-addr', '127.0.0.1']

/**
 * PyTorch's gloo, where TSRUN_BENCH_PYTHON names a Python that has torch.
 *
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {Promise<import('./system.mjs').Found>}
 */
export async function findTorch(env = process.env) {
  const found = await findTorchPython(env)
  if ('skipped' in found) return { systems: [], skipped: found.skipped }
  return { systems: [torch(found.python, env)], version: found.version }
}

/**
 * @param {string} python
 * @param {NodeJS.ProcessEnv} env
 * @returns {import('./system.mjs').System}
 */
function torch(python, env) {
  return {
    system: 'torch',
    transport: 'gloo',
    engine: null,
    commandLine: (ranks, output, steps) => ({
      command: python,
      args: [...launch, '--nproc-per-node', String(ranks), rank, output, ...steps],
      env: {
        OMP_NUM_THREADS: '1',
        // Without it gloo looks up the host's name, which need not lead to the loopback.
        ...(process.platform === 'linux' && {
          GLOO_SOCKET_IFNAME: env['GLOO_SOCKET_IFNAME'] ?? 'lo',
        }),
      },
    }),
  }
}
