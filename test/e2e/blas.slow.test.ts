import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { readBlasManifest, thisSystem } from '@tsrun/core'
import { OPENBLAS_VERSION } from '../internals/doctor.ts'
import { tsrun } from '../launcher/support/tsrun.ts'
import { needing } from '../needs.ts'

const folder = mkdtempSync(join(tmpdir(), 'tsrun-blas-'))
afterAll(() => {
  rmSync(folder, { recursive: true })
})

/** Whether pip can get the wheel of OpenBLAS. */
function isReachable(): boolean {
  const flags = ['--dry-run', '--quiet', '--no-deps', '--only-binary', ':all:', '--retries', '0']
  const wheel = `scipy-openblas32==${OPENBLAS_VERSION}`
  const args = ['-m', 'pip', 'install', ...flags, '--target', folder, wheel]
  return spawnSync('python3', args, { timeout: 60_000 }).status === 0
}

const root = fileURLToPath(new URL('../..', import.meta.url))
const withWheels = needing(isReachable(), 'pip, or no network for it')

withWheels.it(
  'tsrun setup blas installs OpenBLAS, with its licences, and its products are right',
  async () => {
    const env = { TSRUN_HOME: join(folder, 'home') }
    const first = await tsrun(['setup', 'blas'], { env })
    expect(first).toMatchObject({ code: 0, stderr: '' })
    const { library, kernels } = readBlasManifest(env)!
    expect(first.stdout).toContain(`is set up (kernels ${kernels!}, ${library})`)
    const installed = resolve(library, '../../..')
    const facts = readdirSync(installed).find((name) => name.endsWith('.dist-info'))!
    expect(existsSync(join(installed, facts, 'licenses/LICENSE.txt'))).toBe(true)
    expect((await tsrun(['setup', 'blas', '--check'], { env })).code).toBe(0)
    expect((await tsrun(['setup', 'blas'], { env })).stdout).toContain('there is nothing to do')
    const doctor = await tsrun(['doctor'], { env: { ...env, TSRUN_BLAS: '' } })
    expect(doctor.stdout).toContain(`${library}, kernels ${kernels!}`)
  },
  300_000,
)

withWheels.it(
  'npm run blas-packages makes a package that tsrun finds beside a script',
  async () => {
    const make = (...args: string[]) =>
      spawnSync('npm', ['run', '--silent', 'blas-packages', '--', ...args], {
        cwd: root,
        encoding: 'utf8',
      })
    const out = join(folder, 'node_modules/@tsrun')
    mkdirSync(out, { recursive: true })
    const other = thisSystem === 'win32-x64' ? 'linux-x64' : 'win32-x64'
    const made = make('--out', out, '--platform', `${thisSystem},${other}`)
    expect(made).toMatchObject({ status: 0, stderr: '' })
    expect(made.stdout).toContain('GCC-exception-3.1; its products are right (kernels ')
    expect(made.stdout).toContain('not tested, because it is for another system')
    const name = `blas-${thisSystem}`
    expect(readdirSync(out).sort()).toEqual([`blas-${other}`, name].sort())

    const env = { TSRUN_HOME: join(folder, 'none'), TSRUN_BLAS: '' }
    const { stdout } = await tsrun(['env'], { env, cwd: folder })
    expect(stdout).toMatch(new RegExp(`BLAS of wasm: ${out}/${name}/.*, from @tsrun/${name}$`, 'm'))

    const again = make('--out', out, '--platform', thisSystem)
    expect(again).toMatchObject({ status: 2, stdout: '' })
    expect(again.stderr).toBe(`blas-packages: --out: ${join(out, name)} exists\n`)
    expect(make('--out', out, '--platform', 'win32-arm64').stderr).toContain(
      'no win32-arm64: its wheel does not contain the licence of OpenBLAS',
    )
  },
  300_000,
)
