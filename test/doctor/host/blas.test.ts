import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { thisSystem, writeManifest } from '@tsrun/core'
import { envText, type HostReport } from '../../internals/doctor.ts'
import { FakeBlas, withCompiler } from '../support/fake-blas.ts'
import { tsrunHere } from '../../launcher/support/in-process.ts'

withCompiler.describe('tsrun env', () => {
  const blas = new FakeBlas()
  let folder: string
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'tsrun-env-'))
  })
  afterEach(() => {
    rmSync(folder, { recursive: true })
  })

  async function report(changes: NodeJS.ProcessEnv): Promise<HostReport> {
    const env = { PATH: folder, TSRUN_HOME: folder, LD_LIBRARY_PATH: '', ...changes }
    const { stdout } = await tsrunHere(['env', '--json'], { env, cwd: folder })
    return JSON.parse(stdout) as HostReport
  }
  const setUp = (library: string): void => {
    const facts = { format: 1, version: '1', kernels: 'Old', createdAt: '' } as const
    writeManifest('blas', { ...facts, library, system: thisSystem }, { TSRUN_HOME: folder })
  }

  it('names the BLAS of TSRUN_BLAS, its kernels, and the variable that selects them', async () => {
    setUp('/nowhere.so')
    const found = await report({ TSRUN_BLAS: blas.path, OPENBLAS_CORETYPE: 'Haswell' })
    const kernels = 'Haswell (OPENBLAS_CORETYPE=Haswell)'
    expect(found.blas).toEqual({ library: blas.path, origin: 'TSRUN_BLAS', kernels, problems: [] })
    expect(found.variables).toMatchObject({ OPENBLAS_CORETYPE: 'Haswell', TSRUN_BLAS: blas.path })
    expect(envText(found)).toContain(
      `\n  - BLAS of wasm: ${blas.path}, kernels ${kernels}, from TSRUN_BLAS\n`,
    )
  })

  it('names the BLAS that is set up', async () => {
    setUp(blas.path)
    const own = { library: blas.path, origin: 'tsrun setup blas', kernels: 'Played', problems: [] }
    expect((await report({})).blas).toEqual(own)
  })

  it('says why the BLAS that is set up is not used, and looks for one of the system', async () => {
    setUp(join(folder, 'gone.so'))
    expect((await report({})).blas.problems[0]).toMatch(
      /gone\.so: .*cannot open shared object file/,
    )
    mkdirSync(join(folder, 'blas'), { recursive: true })
    writeFileSync(join(folder, 'blas/manifest.json'), 'nonsense')
    expect((await report({})).blas.problems[0]).toContain('it is not valid JSON')
  })

  it('finds no BLAS if TSRUN_BLAS is off, or names one whose products are wrong', async () => {
    setUp(blas.path)
    const off = await report({ TSRUN_BLAS: 'off' })
    expect(off.blas).toEqual({ library: null, origin: null, kernels: null, problems: [] })
    expect(envText(off)).toContain('\n  - BLAS of wasm: not found\n')
    const wrong = await report({ TSRUN_BLAS: blas.path, FAULT: 'beta' })
    expect(wrong.blas).toMatchObject({
      library: null,
      problems: [expect.stringMatching(/: Error: a product of .* has NaN instead of/)],
    })
  })
})
