import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  blasLibraries,
  readBlasManifest,
  thisSystem,
  tsrError,
  writeManifest,
  type BlasManifest,
} from '@tsrun/core'

const manifest: BlasManifest = {
  ...{ format: 1, library: '/l.so', version: '0.3', kernels: 'Zen', system: thisSystem },
  createdAt: '2026-11-21T00:00:00.000Z',
}

let home: string
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'tsrun-home-'))
})
afterEach(() => {
  rmSync(home, { recursive: true })
})

it('the BLAS manifest is undefined until it is written, and then read unchanged', () => {
  const env = { TSRUN_HOME: home }
  expect(readBlasManifest(env)).toBeUndefined()
  writeManifest('blas', manifest, env)
  expect(readBlasManifest(env)).toEqual(manifest)
  const { kernels, ...silent } = manifest
  expect(kernels).toBe('Zen')
  writeManifest('blas', silent, env)
  expect(readBlasManifest(env)).toEqual(silent)
})

it.each([
  ['{"format":1', 'it is damaged, or another version of tsrun wrote it'],
  [JSON.stringify({ ...manifest, format: 2 }), 'another version of tsrun wrote it'],
  [JSON.stringify({ ...manifest, library: 1 }), 'another version of tsrun wrote it'],
])('the BLAS manifest %s is refused, with the command that replaces it', (text, problem) => {
  const env = { TSRUN_HOME: home }
  writeManifest('blas', manifest, env)
  writeFileSync(join(home, 'blas/manifest.json'), text)
  expect(() => readBlasManifest(env)).toThrow(
    expect.objectContaining({
      code: 'ERR_TSR_SETUP_MANIFEST',
      message: expect.stringMatching(
        new RegExp(`The manifest of \`npx tsrun setup blas\`, .*${problem}\\. Run that command`),
      ) as string,
    }),
  )
})

it("the advice for a manifest that Node's permission model hides is --allow-fs-read", () => {
  const { message } = tsrError('ERR_TSR_SETUP_MANIFEST', {
    name: 'blas',
    path: join(home, 'blas/manifest.json'),
    problem: accessDenied(),
  })
  expect(message).toMatch(/--allow-fs-read for the folder/)
  expect(message).not.toContain('Run that command again')
})

/** The message of Node for a file that its permission model hides. */
function accessDenied(): string {
  const [flag] = ['--permission', '--experimental-permission'].filter((name) =>
    process.allowedNodeEnvironmentFlags.has(name),
  )
  const code = 'try { fs.readFileSync("/") } catch ({ message }) { console.log(message) }'
  return execFileSync(process.execPath, [flag!, '-e', code], { stdio: 'pipe' }).toString()
}

it('the BLAS of the set-up comes before that of an npm package, and this before those of the system', () => {
  const env = { TSRUN_HOME: home }
  const name = `@tsrun/blas-${thisSystem}`
  const folder = join(realpathSync(home), 'node_modules', name)
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ name, exports: './l.so' }))
  writeFileSync(join(folder, 'l.so'), '')
  writeManifest('blas', manifest, env)
  const problems: string[] = []
  const find = (more: object) =>
    blasLibraries((problem) => problems.push(problem), { ...env, ...more })
  const before = process.cwd()
  process.chdir(home)
  try {
    const [first, second, ...others] = find({})
    expect([first, second]).toEqual([
      ['/l.so', 'tsrun setup blas'],
      [join(folder, 'l.so'), name],
    ])
    expect(new Set(others.map(([, origin]) => origin))).toEqual(new Set(['the system']))
    writeFileSync(join(home, 'blas/manifest.json'), '{}')
    expect(find({})[0]).toEqual(second)
    expect(problems).toEqual([expect.stringContaining('another version of tsrun wrote it')])
  } finally {
    process.chdir(before)
  }
  expect(find({ TSRUN_BLAS: 'libmine.so' })).toEqual([['libmine.so', 'TSRUN_BLAS']])
  expect(find({ TSRUN_BLAS: 'off' })).toEqual([])
})
