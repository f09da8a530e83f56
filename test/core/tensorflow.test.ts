import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  readTensorFlowManifest,
  restoreLegacyUtil,
  thisSystem,
  tsrunHome,
  writeManifest,
  type TensorFlowManifest,
} from '@tsrun/core'

const tensorflowHome = (env: Record<string, string>) => join(tsrunHome(env), 'tensorflow')

const manifest: TensorFlowManifest = {
  format: 1,
  request: { gpu: false, official: false, wheel: null, python: null },
  package: '@tensorflow/tfjs-node',
  packageVersion: '4.22.0',
  tensorflowVersion: '2.21.0',
  folder: '/set/up',
  libraryFolders: ['/set/up/tensorflow'],
  devices: ['CPU'],
  system: thisSystem,
  createdAt: '2026-11-21T00:00:00.000Z',
}

let home: string
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'tsrun-home-'))
})
afterEach(() => {
  rmSync(home, { recursive: true })
})

it('the tensorflow folder is below TSRUN_HOME, or else below the cache folder of the user', () => {
  expect(tensorflowHome({ TSRUN_HOME: '/some/where' })).toBe('/some/where/tensorflow')
  expect(tensorflowHome({ XDG_CACHE_HOME: '/cache' })).toBe('/cache/tsrun/tensorflow')
  const fallback = join(homedir(), '.cache/tsrun/tensorflow')
  expect(tensorflowHome({})).toBe(fallback)
  expect(tensorflowHome({ TSRUN_HOME: '', XDG_CACHE_HOME: '' })).toBe(fallback)
})

it('the tensorflow manifest is undefined until it is written, and then read unchanged', () => {
  const env = { TSRUN_HOME: join(home, 'not/yet/there') }
  expect(readTensorFlowManifest(env)).toBeUndefined()
  writeManifest('tensorflow', manifest, env)
  expect(readTensorFlowManifest(env)).toEqual(manifest)
  writeManifest('tensorflow', { ...manifest, packageVersion: '5.0.0' }, env)
  expect(readTensorFlowManifest(env)?.packageVersion).toBe('5.0.0')
  expect(readdirSync(tensorflowHome(env))).toEqual(['manifest.json'])
})

it('the tensorflow manifest is kept if a new one cannot be written', () => {
  const env = { TSRUN_HOME: home }
  writeManifest('tensorflow', manifest, env)
  expect(() => {
    writeManifest('tensorflow', { ...manifest, packageVersion: 5n as never }, env)
  }).toThrow()
  expect(readTensorFlowManifest(env)).toEqual(manifest)
})

it.each([
  ['{"format":1', 'it is damaged, or another version of tsrun wrote it'],
  ['null', 'another version of tsrun wrote it'],
  ['{"format":2}', 'another version of tsrun wrote it'],
])('the tensorflow manifest %s is refused', (text, problem) => {
  const env = { TSRUN_HOME: home }
  mkdirSync(tensorflowHome(env))
  writeFileSync(join(tensorflowHome(env), 'manifest.json'), text)
  expect(() => readTensorFlowManifest(env)).toThrow(
    expect.objectContaining({ code: 'ERR_TSR_SETUP_MANIFEST' }),
  )
  expect(() => readTensorFlowManifest(env)).toThrow(problem)
})

it('restoreLegacyUtil() restores the functions of node:util that the binding calls', async () => {
  restoreLegacyUtil()
  const { default: util } = (await import('node:util')) as unknown as {
    default: Record<string, (value: unknown) => boolean>
  }
  expect([undefined, null, 0].map((value) => util['isNullOrUndefined']!(value))).toEqual([
    true,
    true,
    false,
  ])
  expect([util['isUndefined']!(null), util['isArray']!([])]).toEqual([false, true])
})
