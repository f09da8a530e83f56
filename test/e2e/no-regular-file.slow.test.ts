import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, chownSync, mkdirSync, mkdtempSync, readFileSync } from 'node:fs'
import { rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { bin, fixtures, killLeftovers, tsrun } from '../launcher/support/tsrun.ts'
import { needing } from '../needs.ts'

afterEach(killLeftovers)

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-no-file-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

/** A FIFO without a writer. */
function fifo(name: string): string {
  const path = join(folder, name)
  mkdirSync(dirname(path), { recursive: true })
  execFileSync('mkfifo', ['--mode', '600', path])
  return path
}

/** Milliseconds after which a command that waits for ever is killed. */
const LIMIT = 20_000

describe('a folder below /proc', () => {
  it.each(['--log-dir', '--trace', '--detach --log-dir'])('is refused by %s', async (flags) => {
    const { code, stderr } = await tsrun([...flags.split(' '), '/proc/x', 'hello.mjs'])
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: expect.stringContaining('the file system of /proc has no place for new folders'),
    })
  })

  it.each(['HOME', 'TSRUN_HOME', 'TSRUN_RUNS_DIR'])(
    'does not prevent a job from running as %s',
    async (name) => {
      const { code } = await tsrun(['hello.mjs'], { env: { [name]: '/proc/x' } })
      expect(code).toBe(0)
    },
  )

  it('as TSRUN_FLIGHT_DIR does not hide the error of a rank', async () => {
    const env = { TSRUN_FLIGHT_DIR: '/proc/x', END: 'throw' }
    const cwd = join(fixtures, '../distributed')
    const { code, stderr } = await tsrun(['--nproc', '2', 'end.mjs'], { env, cwd })
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: expect.stringContaining('Error: uncaught'),
    })
  })
})

describe('a FIFO in place of a file', () => {
  const refused = (path: string): string => `${path} is a FIFO, not a regular file`

  it.each<[string, (path: string) => string[]]>([
    ['--event-log', (path) => ['--event-log', path, 'hello.mjs']],
    ['--token-file', (path) => ['--token-file', path, 'hello.mjs']],
    ['--chaos', (path) => ['--chaos', path, 'hello.mjs']],
    ['--hostfile', (path) => ['hosts', '--hostfile', path, '--', 'hello.mjs']],
    ['doctor --hosts', (path) => ['doctor', '--hosts', path]],
    ['schedule --file', (path) => ['schedule', '--file', path]],
  ])('is refused by %s', async (_, args) => {
    const path = fifo('file')
    const { code, stderr } = await tsrun(args(path))
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(refused('file')) })
  })

  it.each([
    ['flight', 'rank-0.jsonl', 'is a FIFO'],
    ['trace', 'spans/20260101-000000-abcdef/attempt-0.rank-0.1.spans', 'there is no trace'],
    ['view', 'spans/20260101-000000-abcdef/attempt-0.rank-0.1.spans', 'there is no trace'],
    ['logs', '20260101-000000-abcdef/attempt_0/0/stdout.log', 'is a FIFO'],
    ['logs', '20260101-000000-abcdef/attempt_0/0/index.jsonl', 'is a FIFO'],
  ])('does not block tsrun %s: %s', async (command, name, problem) => {
    fifo(name)
    const index = join(dirname(join(folder, name)), 'index.jsonl')
    if (name.endsWith('stdout.log')) writeFileSync(index, '')
    const { code, stderr } = await tsrun([command, folder])
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(problem) })
  })

  it('does not block tsrun logs of a detached run', async () => {
    const path = fifo('run/launcher.log')
    mkdirSync(join(folder, 'run/attempt_0/0'), { recursive: true })
    writeFileSync(join(folder, 'run/attempt_0/0/stdout.log'), 'hello\n')
    writeFileSync(join(folder, 'run/attempt_0/0/index.jsonl'), '')
    expect(await tsrun(['logs', join(folder, 'run')])).toMatchObject({
      code: 2,
      stdout: expect.stringContaining('hello'),
      stderr: expect.stringContaining(refused(path)),
    })
  })

  it('is refused as TSRUN_TUNING', async () => {
    const env = { TSRUN_TUNING: fifo('tuning.json') }
    const cwd = join(fixtures, '../distributed')
    const { code, stderr } = await tsrun(['--nproc', '2', 'end.mjs'], { env, cwd })
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('ERR_TSR_TUNING') })
  })

  it('is refused by every function of @tsrun/training that reads a file', () => {
    const script = fileURLToPath(new URL('../fixtures/training/reads-fifos.mjs', import.meta.url))
    const output = execFileSync(process.execPath, [script, folder], {
      encoding: 'utf8',
      timeout: LIMIT,
    })
    const lines = output.trimEnd().split('\n')
    expect(lines).toHaveLength(11)
    for (const line of lines) expect(line).toContain(' is a FIFO, not a regular file')
  })
})

it('an event log is not written through a symbolic link', async () => {
  const [victim, link] = [join(folder, 'victim'), join(folder, 'events.jsonl')]
  writeFileSync(victim, 'precious')
  symlinkSync(victim, link)
  const { code, stderr } = await tsrun(['--event-log', link, 'hello.mjs'])
  expect({ code, stderr }).toEqual({
    code: 2,
    stderr: expect.stringContaining(`${link} is a symbolic link, which is not followed`),
  })
  expect(readFileSync(victim, 'utf8')).toBe('precious')
})

it('a file as TSRUN_FLIGHT_DIR does not prevent a job from running', async () => {
  const path = join(folder, 'file')
  writeFileSync(path, '')
  const env = { TSRUN_FLIGHT_DIR: path, END: 'throw' }
  const cwd = join(fixtures, '../distributed')
  expect(await tsrun(['hello.mjs'], { env })).toMatchObject({ code: 0, stderr: '' })
  const { code, stderr } = await tsrun(['--nproc', '2', 'end.mjs'], { env, cwd })
  expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('Error: uncaught') })
  expect(stderr).not.toContain('node:fs')
})

it.each(['flight', 'trace', 'view', 'logs'])(
  'tsrun %s names a folder that it may not read',
  (command) => {
    chmodSync(folder, 0)
    // Root may read everything, unless it gives that up.
    const bare = ['setpriv', '--bounding-set', '-dac_override,-dac_read_search']
    const prefix = process.getuid?.() === 0 ? bare : []
    const [program, ...args] = [...prefix, process.execPath, bin, command, folder]
    const { status, stderr } = spawnSync(program, args, { encoding: 'utf8', timeout: LIMIT })
    chmodSync(folder, 0o700)
    expect({ status, stderr }).toEqual({
      status: 2,
      stderr: expect.stringMatching(/^tsrun: .*EACCES: permission denied, scandir '.*\n?$/),
    })
  },
)

const { it: itAsRoot } = needing(process.getuid?.() === 0, 'root')

itAsRoot('an event log of another user, in a folder like /tmp, is not written to', async () => {
  const path = join(folder, 'events.jsonl')
  writeFileSync(path, 'precious')
  chownSync(path, 65_533, 65_533)
  chmodSync(folder, 0o1777)
  const { code, stderr } = await tsrun(['--event-log', path, 'hello.mjs'])
  expect({ code, stderr }).toEqual({
    code: 2,
    stderr: expect.stringContaining(`${path} belongs to the user with the number 65533`),
  })
  expect(readFileSync(path, 'utf8')).toBe('precious')
})
