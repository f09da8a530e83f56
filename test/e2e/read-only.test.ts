import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { bin, cleanEnvironment, fixtures } from '../launcher/support/tsrun.ts'
import { itOnDisk } from './support/mounts.ts'

let disk: string
beforeEach(() => {
  disk = mkdtempSync(join(tmpdir(), 'tsrun-read-only-'))
})
afterEach(() => {
  rmdirSync(disk)
})

/** Runs `tsrun` where `disk` is a file system that is empty and read-only. */
function tsrun(
  args: readonly string[],
  { env, cwd = fixtures }: { readonly env?: NodeJS.ProcessEnv; readonly cwd?: string } = {},
): { readonly code: number | null; readonly stderr: string } {
  const script = 'mount -t tmpfs -o ro none "$0" && cd "$1" && shift && exec "$@"'
  const { status, stderr } = spawnSync(
    'unshare',
    ['-rm', 'sh', '-c', script, disk, cwd, process.execPath, bin, ...args],
    { encoding: 'utf8', env: { ...cleanEnvironment(), ...env }, timeout: 30_000 },
  )
  return { code: status, stderr }
}

itOnDisk.each<[string, (place: string) => string[]]>([
  ['--log-dir', (place) => ['--log-dir', place, 'hello.mjs']],
  ['--trace', (place) => ['--trace', place, 'hello.mjs']],
  ['--trace below it', (place) => ['--trace', join(place, 'a/b'), 'hello.mjs']],
  ['--event-log', (place) => ['--event-log', join(place, 'events.jsonl'), 'hello.mjs']],
  ['init', (place) => ['init', place]],
  ['init below it', (place) => ['init', join(place, 'a')]],
])('a read-only file system is named in one line: %s', (_, args) => {
  const { code, stderr } = tsrun(args(disk))
  expect({ code, stderr }).toEqual({
    code: 2,
    stderr: expect.stringMatching(/^tsrun: .*EROFS: read-only file system, \w+ '.*\n?$/),
  })
  expect(stderr).toContain(disk)
})

itOnDisk.each(['HOME', 'TSRUN_HOME', 'TSRUN_RUNS_DIR', 'TMPDIR', 'XDG_RUNTIME_DIR'])(
  'a job runs without its record, its cache and its status page: %s is read-only',
  (name) => {
    expect(tsrun(['hello.mjs'], { env: { [name]: disk } })).toEqual({ code: 0, stderr: '' })
  },
)

itOnDisk('a rank says once that it cannot write its flight record into a read-only folder', () => {
  const env = { TSRUN_FLIGHT_DIR: disk, END: 'throw' }
  const cwd = join(fixtures, '../distributed')
  const { code, stderr } = tsrun(['--nproc', '2', 'end.mjs'], { env, cwd })
  expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('Error: uncaught') })
  const said = stderr.match(/^\[rank \d\] .*could not be written.*EROFS: read-only file system/gm)
  expect(said).toHaveLength(2)
})

itOnDisk('a rank says nothing about flight records without a folder for temporary files', () => {
  const env = { TMPDIR: join(disk, 'none'), END: 'throw' }
  const cwd = join(fixtures, '../distributed')
  const { code, stderr } = tsrun(['--nproc', '2', 'end.mjs'], { env, cwd })
  expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('Error: uncaught') })
  expect(stderr).not.toContain('could not be written')
})

itOnDisk('a dashboard opens without a folder for temporary files', () => {
  const env = { TMPDIR: join(disk, 'none') }
  const { code, stderr } = tsrun(['--dashboard=0', 'hello.mjs'], { env })
  expect({ code, stderr }).toEqual({ code: 0, stderr: expect.not.stringContaining('ENOENT') })
})
