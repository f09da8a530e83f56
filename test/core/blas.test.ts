import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readBlasManifest, thisSystem, writeManifest, type BlasManifest } from '@tsrun/core'

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
  ['{"format":1', 'it is not valid JSON'],
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
