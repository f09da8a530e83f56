import { spawnSync } from 'node:child_process'
import { tmpdir } from 'node:os'
import { OPENBLAS_VERSION } from '../../internals/doctor.ts'
import { needing } from '../../needs.ts'

/** Whether pip can get the wheel of OpenBLAS. */
function isReachable(): boolean {
  const flags = ['--dry-run', '--quiet', '--no-deps', '--only-binary', ':all:', '--retries', '0']
  const wheel = `scipy-openblas32==${OPENBLAS_VERSION}`
  const args = ['-m', 'pip', 'install', ...flags, '--target', tmpdir(), wheel]
  return spawnSync('python3', args, { timeout: 60_000 }).status === 0
}

export const withWheels = needing(isReachable(), 'pip, or no network for it')
