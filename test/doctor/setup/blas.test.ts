import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { readBlasManifest, thisSystem, writeManifest } from '@tsrun/core'
import { OPENBLAS_VERSION } from '../../internals/doctor.ts'
import { FakeBlas, withCompiler } from '../support/fake-blas.ts'
import { fakeTools } from '../support/fake-tools.ts'
import { tsrunHere } from '../../launcher/support/in-process.ts'

withCompiler.describe('tsrun setup blas', () => {
  const blas = new FakeBlas()
  let folder: string
  let env: NodeJS.ProcessEnv
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'tsrun-setup-'))
    env = { ...fakeTools(folder, ['python3']), BLAS: blas.path }
  })
  afterEach(() => {
    rmSync(folder, { recursive: true })
  })

  const setUp = (changes: NodeJS.ProcessEnv = {}, ...flags: string[]) =>
    tsrunHere(['setup', 'blas', ...flags], { env: { ...env, ...changes } })
  const contents = (): string[] => readdirSync(join(env['TSRUN_HOME']!, 'blas')).sort()

  it('prints one sentence per step, writes a manifest, and does nothing the second time', async () => {
    const before = await setUp({}, '--check')
    expect(before).toMatchObject({ code: 1, stderr: '' })
    expect(before.stdout).toMatch(
      /OpenBLAS is not set up in \S+\/blas: run `npx tsrun setup blas`\n$/,
    )

    const first = await setUp()
    expect(first).toMatchObject({ code: 0, stderr: '' })
    const manifest = readBlasManifest(env)!
    const { library } = manifest
    expect(manifest).toEqual({
      ...{ format: 1, library, version: OPENBLAS_VERSION, kernels: 'Played', system: thisSystem },
      createdAt: expect.stringMatching(/^\d{4}-/) as string,
    })
    const steps = first.stdout.split('\n').filter((line) => !line.startsWith('tsrun setup: …'))
    expect(steps).toEqual([
      `tsrun setup: installing into ${env['TSRUN_HOME']!}/blas (TSRUN_HOME chooses another folder)`,
      'tsrun setup: 1/3 found Python 3.12.0 with pip',
      `tsrun setup: 2/3 installing OpenBLAS ${OPENBLAS_VERSION} with pip`,
      'tsrun setup: 3/3 testing the result in a new process',
      `tsrun setup: OpenBLAS ${OPENBLAS_VERSION} is set up (kernels Played, ${library}); the backend wasm uses it from now on`,
      '',
    ])
    expect(contents()).toEqual([expect.stringMatching(/^build-/), 'manifest.json', 'setup.log'])
    expect(readFileSync(join(folder, 'pip-arguments'), 'utf8')).toMatch(
      /--only-binary :all: --no-compile --no-deps --target \S+ --require-hashes -r \S+\/openblas\.txt$/m,
    )

    const second = await setUp()
    expect(second.stdout).toMatch(/is set up \(kernels Played, .*; there is nothing to do\n$/)
    expect(readBlasManifest(env)).toEqual(manifest)
    const haswell = await setUp({ OPENBLAS_CORETYPE: 'Haswell' }, '--check')
    expect(haswell).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('(kernels Haswell, ') as string,
    })
  })

  it('replaces a library that no longer works, and one of another version', async () => {
    expect((await setUp()).code).toBe(0)
    const { library } = readBlasManifest(env)!
    writeFileSync(library, 'nonsense')
    const broken = await setUp({}, '--check')
    expect(broken.code).toBe(1)
    expect(broken.stdout).toMatch(/but it does not work \(.*\): run `npx tsrun setup blas` again/)
    expect((await setUp()).code).toBe(0)
    const repaired = readBlasManifest(env)!
    expect(repaired.library).not.toBe(library)
    expect(contents()).toHaveLength(3)

    writeManifest('blas', { ...repaired, version: '0.3.1' }, env)
    expect((await setUp({}, '--check')).code).toBe(0)
    expect((await setUp()).code).toBe(0)
    expect(readBlasManifest(env)!.version).toBe(OPENBLAS_VERSION)
    expect(contents()).toHaveLength(3)
  })

  it.each([
    [
      'there is no Python',
      { PATH: '/nowhere' },
      /no Python .*: install Python 3 with pip .*libopenblas0/,
    ],
    ['Python has no pip', { PYTHON: 'no-pip' }, /3\.12\.0 .* has no module pip: install Python 3/],
    [
      'pip has no network',
      { PIP: 'offline' },
      /pip could not install OpenBLAS 0\.3\.\S+ \(ERROR: Could not find .*\): this host cannot reach the index of your pip/,
    ],
    [
      'there is no wheel',
      { PIP: 'no-wheel' },
      /there is no wheel of it for .* or pip is older than/,
    ],
    [
      'the disk is full',
      { PIP: 'full' },
      /\[Errno 28\] .*free some space in TSRUN_HOME and TMPDIR/,
    ],
    [
      'pip downloads a file with another checksum',
      { PIP: 'other-file' },
      /DO NOT MATCH THE HASHES.* gives other files than those/,
    ],
    [
      'the library ignores a transposition',
      { FAULT: 'transposition' },
      /the result does not work \(Error: a product of .* has -?\d+ instead of /,
    ],
    [
      'the library reads the earlier contents of a result',
      { FAULT: 'beta' },
      /the result does not work \(Error: a product of 1 x 33 and 33 x 67 has NaN instead of /,
    ],
    ['the library crashes', { FAULT: 'crash' }, /the result does not work \(ended by SIGILL\)/],
  ])('says what to do when %s, and leaves no files', async (_, failure, sentence) => {
    const { code, stderr } = await setUp(failure)
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(sentence) as string })
    expect(stderr).toMatch(/^tsrun: OpenBLAS was not set up: .*\(ERR_TSR_SETUP\)\n$/)
    expect(contents()).toEqual(['setup.log'])
  })

  it('keeps the previous installation if a new one fails', async () => {
    expect((await setUp()).code).toBe(0)
    const old = { ...readBlasManifest(env)!, version: '0.3.1' }
    writeManifest('blas', old, env)
    expect((await setUp({ PIP: 'offline' })).code).toBe(1)
    expect(readBlasManifest(env)).toEqual(old)
    expect((await setUp({}, '--check')).code).toBe(0)
  })

  it('tests no library of another system, and says that a manifest cannot be read', async () => {
    expect((await setUp()).code).toBe(0)
    const manifest = readBlasManifest(env)!
    writeManifest('blas', { ...manifest, system: 'sunos-sparc' }, env)
    expect((await setUp({}, '--check')).stdout).toContain(
      `it was made for sunos-sparc, and this is ${thisSystem}`,
    )
    writeFileSync(join(env['TSRUN_HOME']!, 'blas/manifest.json'), '{}')
    const { code, stdout } = await setUp({}, '--check')
    expect(code).toBe(1)
    expect(stdout).toMatch(
      /The manifest of `npx tsrun setup blas`, .*: it is damaged, or another version of tsrun wrote it/,
    )
    expect((await setUp()).code).toBe(0)
  })

  it('refuses a home that other users can write to', async () => {
    const home = join(folder, 'shared/blas')
    mkdirSync(home, { recursive: true })
    chmodSync(home, 0o777)
    const { stderr } = await setUp({ TSRUN_HOME: dirname(home) })
    expect(stderr).toMatch(/blas is not safe: every user .*; name another folder in TSRUN_HOME/)
  })
})
