import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import {
  announcements,
  bin,
  cleanEnvironment,
  fixtures,
  killLeftovers,
  Run,
  tsrun,
  until,
} from '../launcher/support/tsrun.ts'
import { needing } from '../needs.ts'
import { stacksOfRun } from './support/stacks.ts'

afterEach(killLeftovers)

const onLinux = process.platform === 'linux'
const { describe: describeOnLinux, it: itOnLinux } = needing(onLinux, 'Linux')

itOnLinux('tsrun stacks shows where ranks are stuck, or do not answer', async () => {
  const run = new Run(['--nproc', '4', '--grace', '0', 'stuck.mjs'])
  await run.announced(4)
  await until(() => run.stdout.includes('rank 3 calls'), 'rank 3 is in native code')
  const [spins, waits, idles, blocks] = await stacksOfRun(run)
  expect(spins).toMatch(/^\(pid \d+\)\n    at spin \(.*stuck\.mjs:5:\d+\)\n    at .*stuck\.mjs:13/)
  expect(waits).toMatch(/at Atomics\.wait .*\n    at waitForever \(.*stuck\.mjs:9/)
  expect(idles).toContain('no JavaScript runs: it awaits something in its event loop')
  expect(blocks).toContain('no answer within 1 s: its main thread is blocked in native code')
  run.signal('SIGTERM')
  await run.finished
})

itOnLinux('tsrun stacks shows the operation of a rank, which continues afterwards', async () => {
  const run = new Run(['--nproc', '2', '--no-summary', 'waits-in-barrier.mjs'])
  await run.announced(1)
  await until(() => run.stdout.includes('rank 0 enters'), 'rank 0 waits')
  const [inBarrier] = await stacksOfRun(run)
  expect(inBarrier).toMatch(/^\(pid \d+\): waiting for .+, in barrier .*#0 of world, for rank 1\n/)
  run.ask(await run.announced(1), (rank) => rank === 1)
  const { code, stdout } = await run.finished
  expect({ code, ends: stdout.match(/through/g)?.length }).toEqual({ code: 0, ends: 2 })
})

itOnLinux('tsrun stacks names programs that are not Node, and jobs that do not exist', async () => {
  const run = new Run(['--no-python', '--nproc', '2', 'sh', '-c', 'echo on; sleep 60'])
  await until(() => run.stdout.match(/on$/gm)?.length === 2, 'both run')
  const blocks = await stacksOfRun(run)
  expect(blocks).toHaveLength(2)
  expect(blocks[1]).toContain('another program than Node (--no-python)')
  run.signal('SIGTERM')
  await run.finished
  expect(await tsrun(['stacks', 'none'])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('ERR_TSR_NO_JOB'),
  })
})

it('--job-timeout shows the stacks of all ranks and ends the job with 124', async () => {
  const { code, stderr } = await tsrun(['--nproc', '2', '--job-timeout', '1.5', 'blocked.mjs'])
  expect(code).toBe(124)
  expect(stderr).toContain('tsrun: stacks at the time-out:\nrank 0 ')
  expect(stderr).toMatch(/^rank 0 .*\nrank 1 .*\n    at Atomics\.wait .*\n    at .*blocked\.mjs:5/m)
  expect(stderr).toContain('tsrun: the job has taken 1.5 s (--job-timeout): stopping the ranks')
})

it('--job-timeout does not affect a job that ends in time, and also ends a job between attempts', async () => {
  expect(await tsrun(['--job-timeout', '600', '--no-summary', 'hello.mjs'])).toMatchObject({
    code: 0,
    stderr: '',
  })
  const again = ['--max-restarts', '100', '--job-timeout', '1', 'die.mjs', 'exit']
  expect((await tsrun(['--nproc', '2', ...again])).code).toBe(124)
})

describe('--inspect', () => {
  it('makes each rank print a port of its own', async () => {
    const run = new Run(['--nproc', '2', '--inspect', 'auto', 'wait.mjs'])
    await run.announced(2)
    await until(() => run.stderr.match(/Debugger listening/g)?.length === 2, 'both listen')
    const places = [
      ...run.stderr.matchAll(/^\[rank (\d)\] Debugger listening on ws:.*:(\d+)\//gm),
    ].sort()
    const targets = await Promise.all(
      places.map(async ([, rank, port]) => {
        const answer = await fetch(`http://127.0.0.1:${port}/json/list`)
        const [target] = (await answer.json()) as { title: string }[]
        return [rank, target!.title]
      }),
    )
    expect(targets.map(([rank]) => rank)).toEqual(['0', '1'])
    expect(new Set(places.map(([, , port]) => port)).size).toBe(2)
    expect(targets[0]![1]).toMatch(/wait\.mjs|node/)
    run.signal('SIGTERM')
    await run.finished
  })

  it('uses consecutive ports, and does not affect child processes of ranks', async () => {
    const { stdout } = await tsrun(['--nproc', '2', '--inspect', '9400', '--dry-run', 'hello.mjs'])
    expect(stdout.match(/--inspect=127\.0\.0\.1:940[01] /g)).toHaveLength(2)
    const args = ['--inspect', 'auto', '--cpu-prof', '--no-summary', '--node-args', '--expose-gc']
    const own = (await tsrun([...args, 'arguments.mjs'])).stdout
    expect(own).toContain('--expose-gc')
    expect(own).not.toMatch(/--inspect|--cpu-prof/)
  })

  it('with --inspect-rank makes only that rank wait for its debugger before the first line', async () => {
    const run = new Run([
      ...['--nproc', '2', '--no-summary', '--inspect', 'auto', '--inspect-rank', '1'],
      'hello.mjs',
    ])
    await until(() => run.stdout.includes('hello from rank 0'), 'the other rank runs')
    expect(run.stderr).toContain('tsrun: rank 1 waits for a debugger')
    const listening = /\[rank 1\] Debugger listening on ws:\/\/(.+)\//
    await until(() => listening.test(run.stderr), 'the rank listens')
    const [, place] = listening.exec(run.stderr)!
    expect(run.stdout).not.toContain('hello from rank 1')
    const client = spawn(process.execPath, ['inspect', place!], { stdio: ['pipe', 'pipe', 'pipe'] })
    let said = ''
    client.stdout.setEncoding('utf8').on('data', (text: string) => (said += text))
    await until(() => /reak on start in .*hello\.mjs:1/.test(said), 'the debugger shows the script')
    expect(run.stdout).not.toContain('hello from rank 1')
    client.stdin.write('cont\n')
    await until(() => run.stdout.includes('hello from rank 1'), 'the rank continues')
    client.stdin.end('.exit\n')
    expect((await run.finished).code).toBe(0)
  })
})

describe('profiles', () => {
  const logs = mkdtempSync(join(tmpdir(), 'tsrun-test-'))
  afterAll(() => {
    rmSync(logs, { recursive: true })
  })
  const profilesIn = (folder: string): string[] =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('profile'))
      .map((name) => name.replace(/^.*attempt_0\//, '').replace(/[\d.]+\d{3}\./, '.'))
      .toSorted()

  it('are written into the log folder of each rank', async () => {
    const args = ['--nproc', '2', '--cpu-prof', '--heap-prof', '--log-dir', join(logs, 'end')]
    expect((await tsrun([...args, 'hello.mjs'])).code).toBe(0)
    expect(profilesIn(join(logs, 'end'))).toEqual(
      [0, 1].flatMap((rank) => [`${rank}/CPU.cpuprofile`, `${rank}/Heap.heapprofile`]),
    )
  })

  it('are written when ranks are stopped, and a new folder is announced', async () => {
    const run = new Run(['--nproc', '2', '--cpu-prof', 'wait.mjs'])
    await run.announced(2)
    const [, folder] = /^tsrun: run \S+: log files: (.*)$/m.exec(run.stderr)!
    run.signal('SIGTERM')
    expect((await run.finished).code).toBe(143)
    expect(profilesIn(folder!)).toEqual(['0/CPU.cpuprofile', '1/CPU.cpuprofile'])
    rmSync(folder!, { recursive: true })
  })

  it('do not end a script that handles SIGTERM itself', async () => {
    const run = new Run(['--nproc', '2', '--cpu-prof', '--log-dir', join(logs, 'own'), 'tidy.mjs'])
    await run.announced(2)
    run.signal('SIGTERM')
    expect((await run.finished).stdout.match(/saved/g)).toHaveLength(2)
    expect(profilesIn(join(logs, 'own'))).toHaveLength(2)
  })
})

it('--node-args are arguments of Node, split like in a shell', async () => {
  const args = ['--no-summary', '--node-args', `--expose-gc --title='a "b"'`, 'arguments.mjs']
  expect((await tsrun(args)).stdout).toMatch(/^gc=function title=a "b" own=.*--expose-gc --title=/)
})

describe('standard input', () => {
  const read = async (args: string[], text: string): Promise<string[]> => {
    const run = new Run([...args, '--no-summary', 'reads.mjs'], { stdin: 'pipe' })
    run.child.stdin!.end(text)
    const { stdout } = await run.finished
    return [...stdout.matchAll(/rank (\d) read \d+/g)].map(([text]) => text).toSorted()
  }

  it('goes to rank 0, another rank, all ranks or none', async () => {
    const two = ['--nproc', '2']
    expect(await read(two, 'four')).toEqual(['rank 0 read 4', 'rank 1 read 0'])
    expect(await read([...two, '--stdin', '1'], 'four')).toEqual(['rank 0 read 0', 'rank 1 read 4'])
    expect(await read([...two, '--stdin', 'none'], 'four')).toEqual([
      'rank 0 read 0',
      'rank 1 read 0',
    ])
    // More than pipes hold.
    const much = 'x'.repeat(1_000_000)
    expect(await read([...two, '--stdin', 'all'], much)).toEqual(
      [0, 1].map((rank) => `rank ${rank} read 1000000`),
    )
  })

  it.each(['0', 'all'])(
    'does not keep a job running if it stays open (--stdin %s)',
    async (who) => {
      const run = new Run(['--nproc', '2', '--stdin', who, 'hello.mjs'], { stdin: 'pipe' })
      run.child.stdin!.write('x'.repeat(1000))
      expect((await run.finished).code).toBe(0)
    },
  )

  it('of a shell loop is not consumed by ranks that do not read it', async () => {
    const tsrunHello = `"${process.execPath}" "${bin}" --no-summary --nproc 2 hello.mjs`
    const loop = `printf 'a\nb\n' | while read word; do ${tsrunHello} > /dev/null; echo $word; done`
    expect(await shell(loop)).toBe('a\nb\n')
  })
})

describeOnLinux('a terminal', () => {
  it('is read by the launcher for rank 0, up to the end of input', async () => {
    const terminal = new Terminal(`"${process.execPath}" "${bin}" --nproc 2 --no-summary reads.mjs`)
    await until(() => terminal.text.includes('rank 1 read 0'), 'the other rank gets nothing')
    terminal.write('four\n')
    terminal.write('\x04')
    await until(() => terminal.text.includes('rank 0 read 5'), 'rank 0 gets the line')
    expect(await terminal.ended).toBe(0)
  })

  it('is not read by a launcher in the background, which is not stopped', async () => {
    const job = `"${process.execPath}" "${bin}" --nproc 2 --no-summary wait.mjs`
    const lines = ['set -m', `${job} &`, 'read line', 'echo "got $line"', 'kill $!', 'wait $!']
    const terminal = new Terminal(`bash -c '${[...lines, 'echo "code $?"'].join('\n')}'`)
    await until(
      () => announcements(terminal.text.replaceAll('\r', '')).length === 2,
      'the ranks run',
    )
    terminal.write('a word\n')
    await until(() => terminal.text.includes('got a word'), 'the shell gets the line')
    await until(() => terminal.text.includes('code 143'), 'the launcher is stopped by the signal')
    expect(await terminal.ended).toBe(0)
  })

  it('stops its job with SIGHUP when it closes', async () => {
    const job = `"${process.execPath}" "${bin}" --no-summary wait.mjs`
    const lines = [`${job} &`, 'read line', 'kill -HUP $!', 'wait $!', 'echo "code $?"']
    const terminal = new Terminal(`bash -c '${lines.join('\n')}'`)
    await until(() => terminal.text.includes('ready'), 'the rank runs')
    terminal.write('close\n')
    await until(() => terminal.text.includes('code 129'), 'the launcher is stopped by the signal')
    expect(await terminal.ended).toBe(0)
  })
})

/** Runs a command in the folder of the fixtures; what it printed. */
async function shell(command: string): Promise<string> {
  const child = spawn('bash', ['-c', command], {
    cwd: fixtures,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  return await text(child.stdout)
}

/** A command in a terminal of its own. */
class Terminal {
  text = ''
  readonly ended: Promise<number | null>
  readonly #child: ChildProcess

  constructor(command: string) {
    this.#child = spawn('script', ['-qec', command, '/dev/null'], {
      cwd: fixtures,
      env: { ...cleanEnvironment(), NO_COLOR: '1', SHELL: '/bin/sh' },
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    this.#child.stdout!.setEncoding('utf8').on('data', (text: string) => (this.text += text))
    this.ended = once(this.#child, 'close').then(([code]) => code as number | null)
  }

  write(text: string): void {
    this.#child.stdin!.write(text)
  }
}
