import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { thisSystem, writeManifest } from '@tsrun/core'
import { findBlas } from '../../internals/doctor.ts'
import { FakeBlas, withCompiler } from '../support/fake-blas.ts'

withCompiler.describe('tsrun doctor', () => {
  const blas = new FakeBlas()
  let folder: string
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'tsrun-env-'))
  })
  afterEach(() => {
    rmSync(folder, { recursive: true })
  })

  const find = (changes: NodeJS.ProcessEnv) =>
    findBlas({ TSRUN_HOME: folder, ...changes }, new AbortController().signal)
  const setUp = (library: string): void => {
    const facts = { format: 1, version: '1', kernels: 'Old', createdAt: '' } as const
    writeManifest('blas', { ...facts, library, system: thisSystem }, { TSRUN_HOME: folder })
  }

  it('names the BLAS of TSRUN_BLAS, its kernels, and the variable that selects them', async () => {
    setUp('/nowhere.so')
    const found = await find({ TSRUN_BLAS: blas.path, OPENBLAS_CORETYPE: 'Haswell' })
    const kernels = 'Haswell (OPENBLAS_CORETYPE=Haswell)'
    expect(found).toEqual({ library: blas.path, origin: 'TSRUN_BLAS', kernels, problems: [] })
  })

  it('names the BLAS that is set up', async () => {
    setUp(blas.path)
    const own = { library: blas.path, origin: 'tsrun setup blas', kernels: 'Played', problems: [] }
    expect(await find({})).toEqual(own)
  })

  it('says why the BLAS that is set up is not used, and looks for one of the system', async () => {
    setUp(join(folder, 'gone.so'))
    expect((await find({})).problems[0]).toMatch(/gone\.so: .*cannot open shared object file/)
    mkdirSync(join(folder, 'blas'), { recursive: true })
    writeFileSync(join(folder, 'blas/manifest.json'), 'nonsense')
    expect((await find({})).problems[0]).toContain(
      'it is damaged, or another version of tsrun wrote it',
    )
  })

  it('finds no BLAS if TSRUN_BLAS is off, or names one whose products are wrong', async () => {
    setUp(blas.path)
    const off = await find({ TSRUN_BLAS: 'off' })
    expect(off).toEqual({ library: null, origin: null, kernels: null, problems: [] })
    const wrong = await find({ TSRUN_BLAS: blas.path, FAULT: 'beta' })
    expect(wrong).toMatchObject({
      library: null,
      problems: [expect.stringMatching(/: Error: a product of .* has NaN instead of/)],
    })
  })
})
