import { spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { OLDEST_NODE } from '../internals/launcher/job.ts'

const bin = fileURLToPath(new URL('../../packages/launcher/bin/tsrun.js', import.meta.url))

it('tsrun names the version that it needs on an older Node', () => {
  const pretend =
    "Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '18.20.4' } })"
  const { status, stderr } = spawnSync(
    process.execPath,
    ['--import', `data:text/javascript,${encodeURIComponent(pretend)}`, bin, '--version'],
    { encoding: 'utf8' },
  )
  expect(stderr).toContain(`Install Node ${OLDEST_NODE} or later`)
  expect(status).toBe(2)
})

const scratch = mkdtempSync(join(tmpdir(), 'tsrun-bin-'))
afterAll(() => {
  rmSync(scratch, { recursive: true })
})

/** A temporary folder that has a folder for compiled code, or a link to one. */
function withCache(name: string, make: (cache: string) => void): string {
  const folder = join(scratch, name)
  mkdirSync(folder)
  make(join(folder, 'node-compile-cache'))
  return folder
}

it.each([
  ['off', 'a folder below /proc', () => '/proc/x'],
  ['off', '/proc', () => '/proc'],
  ['on', 'an empty folder', () => withCache('empty', () => undefined)],
  [
    'off',
    'a folder with a cache that others can write to',
    () =>
      withCache('open', (cache) => {
        mkdirSync(cache)
        chmodSync(cache, 0o777)
      }),
  ],
  [
    'off',
    'a folder with a link to a cache',
    () =>
      withCache('linked', (cache) => {
        symlinkSync(scratch, cache)
      }),
  ],
])('the compile cache of tsrun is %s if TMPDIR is %s', (expected, _, folder) => {
  const pretend =
    "import module from 'node:module'; module.enableCompileCache = () => " +
    "console.error('cache', process.env.NODE_DISABLE_COMPILE_CACHE === '1' ? 'off' : 'on')"
  const { stderr } = spawnSync(
    process.execPath,
    ['--import', `data:text/javascript,${encodeURIComponent(pretend)}`, bin, '--version'],
    { encoding: 'utf8', env: { ...process.env, TMPDIR: folder() } },
  )
  expect(stderr).toBe(`cache ${expected}\n`)
})
