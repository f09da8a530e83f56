import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { thisSystem } from '@tsrun/core'
import { tsrun } from '../launcher/support/tsrun.ts'
import { withWheels } from './support/wheels.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'tsrun-blas-'))
afterAll(() => {
  rmSync(folder, { recursive: true })
})

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
