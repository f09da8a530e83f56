import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  bin,
  cleanEnvironment,
  fixtures,
  killLeftovers,
  Run,
  tsrun,
  untilGone,
} from '../launcher/support/tsrun.ts'

afterEach(killLeftovers)

interface Entry {
  time: string
  rank?: number
  stream?: string
  line?: string
  event?: string
}

const sorted = (text: string): string[] => text.trimEnd().split('\n').sort()
const entries = (text: string): Entry[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Entry)

describe('output on the console', () => {
  it('consists of whole lines with padded ranks', async () => {
    const { code, stdout } = await tsrun(['--nproc', '11', '--ranks', '0,2-3,10', 'hello.mjs'])
    expect(code).toBe(0)
    expect(sorted(stdout)).toEqual([
      '[rank 0]  hello from rank 0 of 11',
      '[rank 10] hello from rank 10 of 11',
      '[rank 2]  hello from rank 2 of 11',
      '[rank 3]  hello from rank 3 of 11',
    ])
  })

  it('has no prefix for a single rank, whose progress bars move in place', async () => {
    const { stdout } = await tsrun(['streams.mjs'])
    expect(stdout).toContain('begin and end\n')
    expect(stdout).toContain('\r10 %\r20 %\r')
    expect(stdout).toMatch(/\r100 %\nno newline at the end\n$/)
  })

  it('keeps partial lines whole, shows a finished progress bar once, separates the streams and formats log lines', async () => {
    const { stdout, stderr } = await tsrun(['--nproc', '2', '--ranks', '1', 'streams.mjs'])
    const lines = stdout.trimEnd().split('\n')
    expect(lines).toEqual([
      '[rank 1] begin and end',
      '[rank 1] red',
      ...lines.slice(2, -2),
      '[rank 1] 100 %',
      '[rank 1] no newline at the end',
    ])
    expect(lines.length).toBeLessThan(7)
    expect(stderr).toContain('[rank 1] plain on stderr\n')
    // Log lines of the library are shown in a human-readable form.
    expect(stderr).toContain('[rank 1] WARN engine: rank 3 is silent peer=3\n')
  })

  it('is unchanged with --log-format raw', async () => {
    const { stdout, stderr } = await tsrun(['--nproc', '2', '--log-format', 'raw', 'hello.mjs'])
    expect(sorted(stdout)).toEqual(['hello from rank 0 of 2', 'hello from rank 1 of 2'])
    expect(stderr).toBe('')
    const logged = await tsrun(['--log-format', 'raw', 'streams.mjs'])
    expect(logged.stderr).toMatch(/^\{"level":40.*"msg":"rank 3 is silent"\}$/m)
  })

  it('is one JSON object per line on stdout with --log-format json', async () => {
    const { stdout, stderr } = await tsrun(['--nproc', '2', '--log-format', 'json', 'streams.mjs'])
    expect(stderr).toBe('')
    const all = entries(stdout)
    expect(all).toContainEqual({
      time: expect.any(String),
      rank: 1,
      stream: 'stdout',
      line: 'begin and end',
    })
    expect(all).toContainEqual({
      time: expect.any(String),
      rank: 0,
      stream: 'stderr',
      line: 'plain on stderr',
    })
    expect(all.at(-1)).toMatchObject({ event: 'summary', ranks: [{ rank: 0 }, { rank: 1 }] })
  })

  it('is coloured only on a terminal or with FORCE_COLOR', async () => {
    const plain = await tsrun(['--nproc', '2', 'environment.mjs'])
    expect(plain.stdout).not.toContain('\x1b[')
    expect(plain.stdout).not.toContain('FORCE_COLOR')
    const forced = await tsrun(['--nproc', '2', 'hello.mjs'], { env: { FORCE_COLOR: '1' } })
    expect(forced.stdout).toContain('\x1b[36m[rank 0]\x1b[39m hello from rank 0 of 2\n')
    const refused = await tsrun(['--nproc', '2', 'hello.mjs'], {
      env: { FORCE_COLOR: '1', NO_COLOR: '1' },
    })
    expect(refused.stdout).not.toContain('\x1b[')
  })

  it('is complete if a rank prints much and exits at once', async () => {
    const count = 5_000
    const { code, stdout } = await tsrun([
      '--nproc',
      '2',
      '--log-format',
      'raw',
      'much.mjs',
      String(count),
    ])
    expect(code).toBe(0)
    const lines = stdout.trimEnd().split('\n')
    expect(lines).toHaveLength(2 * count)
    expect(lines.filter((line) => /^line \d+ \.{100}$/.test(line))).toHaveLength(2 * count)
  })

  it('is complete if its reader is slow', async () => {
    const count = 20_000
    const run = new Run(['--nproc', '2', 'much.mjs', String(count)])
    run.child.stdout!.pause()
    await run.idle()
    run.child.stdout!.resume()
    const { code, stdout } = await run.finished
    expect(code).toBe(0)
    expect(stdout.trimEnd().split('\n')).toHaveLength(2 * count)
  })

  it('has endless lines cut without losing a character', async () => {
    const { stdout } = await tsrun(['--nproc', '2', '--ranks', '0', 'exit-loudly.mjs'])
    const pieces = stdout.trimEnd().split('\n')
    expect(pieces.length).toBe(Math.ceil(999_999 / 65_536))
    expect(pieces.join('').replaceAll('[rank 0] ', '')).toBe('y'.repeat(999_999))
  })

  it('ends the job quietly when its reader is gone', async () => {
    const run = new Run(['--nproc', '2', 'flood.mjs'])
    const ranks = await run.announced(2)
    run.child.stdout!.destroy()
    const { code, stderr } = await run.finished
    expect({ code, stderr }).toEqual({ code: 141, stderr: '' })
    await untilGone(ranks.map(({ pid }) => pid))
  })
})

describe('a full disk', () => {
  /** Runs tsrun in a shell, which directs its output elsewhere. */
  const inShell = (line: string): { code: number | null; stdout: string; stderr: string } => {
    const { status, stdout, stderr } = spawnSync(
      'bash',
      ['-c', line, 'bash', process.execPath, bin],
      { cwd: fixtures, encoding: 'utf8', env: cleanEnvironment() },
    )
    return { code: status, stdout, stderr }
  }
  const full = 'cannot be written: ENOSPC: no space left on device, write\n'

  it('under stdout stops the job and is reported on stderr', () => {
    expect(inShell('"$@" --no-summary --nproc 2 flood.mjs > /dev/full')).toEqual({
      code: 74,
      stdout: '',
      stderr: `tsrun: stdout ${full}tsrun: ENOSPC: stopping the ranks (SIGKILL after 10 s)\n`,
    })
  })

  it('under stderr is reported on stdout, with the failure report', () => {
    const { code, stdout } = inShell('"$@" --nproc 2 flaky.mjs 9 2> /dev/full')
    expect(code).toBe(4)
    expect(stdout).toContain(`tsrun: stderr ${full}`)
    expect(stdout).toMatch(/^first cause +rank 0 of 2 called process.exit\(4\)/m)
    expect(inShell('"$@" nowhere.mjs 2> /dev/full')).toMatchObject({
      code: 2,
      stdout: expect.stringContaining('Cannot run nowhere.mjs'),
    })
  })

  it('under both streams has its own exit code', () => {
    expect(inShell('"$@" hello.mjs > /dev/full 2>&1').code).toBe(74)
  })

  it.each(['ps', '--help', 'env --json', 'schedule'])('is reported by tsrun %s', (command) => {
    const { code, stderr } = inShell(`"$@" ${command} > /dev/full`)
    expect({ code, stderr }).toEqual({ code: 74, stderr: `tsrun: stdout ${full}` })
  })

  it('under the log files or the event log is reported once, and the job continues', () => {
    const folder = mkdtempSync(join(tmpdir(), 'tsrun-logs-'))
    const flags = `--log-format raw --log-dir ${folder} --event-log ${folder}/events`
    const { code, stdout, stderr } = inShell(`ulimit -f 1; "$@" ${flags} much.mjs 100`)
    rmSync(folder, { recursive: true })
    expect({ code, lines: stdout.trimEnd().split('\n').length }).toEqual({ code: 0, lines: 100 })
    expect(stderr.trimEnd().split('\n').sort()).toEqual([
      expect.stringMatching(/^tsrun: the event log .*events ends here: EFBIG: /),
      expect.stringMatching(/^tsrun: the log files of rank 0 end here: EFBIG: /),
    ])
  })

  it('gets as much of a text as fits', () => {
    const { code, stdout, stderr } = inShell(
      'out=$(mktemp); (ulimit -f 1; exec "$@" --help > $out); code=$?; wc -c < $out; rm $out; exit $code',
    )
    expect({ code, stdout, stderr }).toEqual({
      code: 74,
      stdout: '1024\n',
      stderr: expect.stringMatching(/^tsrun: stdout cannot be written: EFBIG: /),
    })
  })
})

describe('--log-dir', () => {
  let directory = ''
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'tsrun-logs-'))
  })
  afterEach(() => {
    rmSync(directory, { recursive: true })
  })

  it('writes the lines of each rank to its own files, without prefix or colour', async () => {
    const { code } = await tsrun([
      '--nproc',
      '2',
      '--ranks',
      '0',
      '--log-dir',
      directory,
      'streams.mjs',
    ])
    expect(code).toBe(0)
    const [runId] = readdirSync(directory)
    const own = join(directory, runId!, 'attempt_0', '1')
    const stdout = readFileSync(join(own, 'stdout.log'), 'utf8')
    expect(stdout).toMatch(/^begin and end\nred\n\r10 %\r|^begin and end\nred\n\r0 %\r/)
    expect(stdout).toMatch(/100 %\nno newline at the end\n$/)
    expect(readFileSync(join(own, 'stderr.log'), 'utf8')).toMatch(/^plain on stderr\n\{"level":40/)
  })

  it('makes a directory for each attempt, which the report names', async () => {
    const args = ['--nproc', '2', '--max-restarts', '1', '--log-dir', directory, 'flaky.mjs', '9']
    const { code, stderr } = await tsrun(args)
    expect(code).toBe(4)
    const [runId] = readdirSync(directory)
    const attempts = readdirSync(join(directory, runId!)).sort()
    expect(attempts).toEqual(['attempt_0', 'attempt_1'])
    for (const attempt of attempts) expect(stderr).toContain(join(directory, runId!, attempt))
    const log = readFileSync(join(directory, runId!, 'attempt_1', '0', 'stdout.log'), 'utf8')
    expect(log).toContain('rank 0 in attempt 1')
  })
})

describe('the summary at the end', () => {
  it('shows time, CPU and memory of each rank', async () => {
    const { stderr } = await tsrun(['--nproc', '2', '--summary', 'hello.mjs'])
    const [titles, ...rows] = stderr.trimEnd().split('\n')
    expect(titles).toMatch(/rank +time +CPU time +CPU +peak memory/)
    expect(rows).toHaveLength(2)
    for (const row of rows) expect(row).toMatch(/^ +[01] +[\d.]+ s +[\d.]+ s +\d+ % +\d+ MiB$/)
  })

  it('has a row for each of many ranks, whose failure report is short', async () => {
    const { code, stderr } = await tsrun(['--nproc', '17', '--summary', 'many-fail.mjs'])
    expect(code).toBe(1)
    const lines = stderr.trimEnd().split('\n')
    expect(lines[0]).toMatch(/^rank +time +CPU time +CPU +peak memory$/)
    const names = lines.slice(1, 18).map((line) => line.trim().split(' ')[0])
    expect(names).toEqual(Array.from({ length: 17 }, (_, rank) => String(rank)))
    expect(stderr).toContain('first cause  rank 3 of 17 died of an uncaught error')
    // Ranks that lost rank 3, that failed because of those, and that tsrun stopped share lines.
    expect(lines.length - 18).toBeLessThan(20)
  })

  it('is omitted without --summary and TSRUN_SUMMARY', async () => {
    expect((await tsrun(['--nproc', '2', 'hello.mjs'])).stderr).toBe('')
    const { stderr } = await tsrun(['hello.mjs'], { env: { TSRUN_SUMMARY: '1' } })
    expect(stderr).toContain('peak memory')
  })
})

describe.each([
  ['1', /^hidden red$/m],
  // the rank that dies first may end the other one
  ['2', /^\[rank [01]\] hidden red$/m],
])('codes that control a terminal, from a job of %s', (nproc, line) => {
  const of = (env: NodeJS.ProcessEnv) =>
    tsrun(['--nproc', nproc, '--no-summary', 'conceals.mjs'], { env })

  it('are not written to a pipe, in lines or in the report', async () => {
    const { stdout, stderr } = await of({})
    expect(stdout).toMatch(line)
    expect(stderr).toContain('error        Error: bad green\n')
    expect(stdout + stderr).not.toContain('\x1b')
  })

  it('hide nothing, and colour only their own line', async () => {
    const { stdout, stderr } = await of({ FORCE_COLOR: '1' })
    expect(stdout).toContain('hidden \x1b[31mred\x1b[0m\n')
    expect(stderr).toContain('Error: bad \x1b[32mgreen\x1b[0m\n')
  })
})
