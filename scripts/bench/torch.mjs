import { runToEnd } from './child.mjs'

/**
 * The Python that TSRUN_BENCH_PYTHON names, if it has torch.
 *
 * @param {NodeJS.ProcessEnv} env
 * @returns {Promise<{ python: string, version: string } | { skipped: string }>}
 */
export async function findTorchPython(env) {
  const python = env['TSRUN_BENCH_PYTHON']
  if (!python) return { skipped: 'no torch (set TSRUN_BENCH_PYTHON)' }
  const probe = 'import torch; print(torch.__version__)'
  const { ok, output } = await runToEnd(python, ['-c', probe])
  if (!ok) return { skipped: `no torch (TSRUN_BENCH_PYTHON=${python} has none)` }
  return { python, version: output.trim().split('\n').at(-1) ?? 'unknown' }
}
