import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { readBlasManifest } from '@tsrun/core'
import { tsrun } from '../launcher/support/tsrun.ts'
import { withWheels } from './support/wheels.ts'

const folder = mkdtempSync(join(tmpdir(), 'tsrun-blas-'))
afterAll(() => {
  rmSync(folder, { recursive: true })
})

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
