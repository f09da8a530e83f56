import { spawn, type ChildProcess } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

/** The command itself. */
export const bin = fileURLToPath(
  new URL('../../../packages/launcher/bin/tsrun.js', import.meta.url),
)
export const fixtures = fileURLToPath(new URL('../../fixtures/launcher/', import.meta.url))

export interface Finished {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
  /** On the host's monotonic clock, milliseconds. */
  readonly at: number
}

export interface Options {
  readonly env?: NodeJS.ProcessEnv
  readonly cwd?: string
  /** A limit of each process, as arguments of `ulimit`. */
  readonly ulimit?: string
  /** What it can read; default: nothing. */
  readonly stdin?: 'ignore' | 'pipe'
}

export interface RankLine {
  readonly rank: number
  readonly pid: number
  readonly at: number
}

/** A running `tsrun`. */
export class Run {
  readonly child: ChildProcess
  readonly finished: Promise<Finished>
  stdout = ''
  stderr = ''

  constructor(args: readonly string[], options: Options = {}) {
    const limit = options.ulimit === undefined ? '' : `ulimit ${options.ulimit}; `
    this.child = spawn(
      'bash',
      ['-c', `${limit}exec "$@"`, 'bash', process.execPath, bin, ...args],
      {
        cwd: options.cwd ?? fixtures,
        env: { ...cleanEnvironment(), ...options.env },
        stdio: [options.stdin ?? 'ignore', 'pipe', 'pipe'],
      },
    )
    running.add(this)
    this.child.stdout!.setEncoding('utf8').on('data', (text: string) => (this.stdout += text))
    this.child.stderr!.setEncoding('utf8').on('data', (text: string) => (this.stderr += text))
    this.finished = new Promise((resolve) => {
      let at = 0
      this.child.once('exit', () => (at = now()))
      this.child.once('close', (code, signal) => {
        running.delete(this)
        resolve({ code, signal, stdout: this.stdout, stderr: this.stderr, at })
      })
    })
  }

  get pid(): number {
    return this.child.pid!
  }

  signal(signal: NodeJS.Signals): void {
    this.child.kill(signal)
  }

  /** Waits until the launcher has nothing to do: its CPU time stands still. */
  async idle(): Promise<void> {
    let before = -1
    let since = now()
    await until(() => {
      const spent = cpuTicks(this.pid)
      if (spent !== before) since = now()
      before = spent
      return now() - since > 300
    }, 'the launcher is idle')
  }

  /** Asks ranks that wait for it to act. */
  ask(ranks: readonly RankLine[], which: (rank: number) => boolean = () => true): void {
    for (const { rank, pid } of ranks) if (which(rank)) process.kill(pid, 'SIGUSR2')
  }

  /** What the ranks said with `announce(word)`, once `count` of them have. */
  async announced(count: number, word = 'ready'): Promise<RankLine[]> {
    const read = (): RankLine[] => announcements(this.stdout, word)
    await until(() => read().length >= count, `${count} x ${word} in\n${this.stdout}${this.stderr}`)
    return read()
  }
}

const running = new Set<Run>()

/** Kills what a failed test has left running. */
export function killLeftovers(): void {
  for (const { child } of running) child.kill('SIGKILL')
  running.clear()
}

/** Runs `tsrun` to its end. */
export async function tsrun(args: readonly string[], options?: Options): Promise<Finished> {
  return await new Run(args, options).finished
}

export function announcements(stdout: string, word = 'ready'): RankLine[] {
  const pattern = new RegExp(`${word} rank=(\\d+) pid=(\\d+) at=([\\d.]+)$`, 'gm')
  return Array.from(stdout.matchAll(pattern), ([, rank, pid, at]) => ({
    rank: Number(rank),
    pid: Number(pid),
    at: Number(at),
  }))
}

/** Waits for a condition, looking often; fails after `limit` ms. */
export async function until(holds: () => boolean, what: string, limit = 20_000): Promise<void> {
  const deadline = now() + limit
  while (!holds()) {
    if (now() > deadline) throw new Error(`after ${limit} ms still not: ${what}`)
    await pause(10)
  }
}

/** Waits until neither the processes nor anything in their groups is left. */
export async function untilGone(pids: readonly number[], limit = 2000): Promise<void> {
  const left = (): object[] => {
    const members = livingProcesses()
    return members.filter(({ pid, group }) => pids.includes(pid) || pids.includes(group))
  }
  await until(() => left().length === 0, `processes ${pids.join(', ')} are gone`, limit)
}

/** All processes of this host but the dead that their new parent has not yet fetched. */
function livingProcesses(): { pid: number; group: number }[] {
  return readdirSync('/proc').flatMap((name) => {
    const [state, , group] = /^\d+$/.test(name) ? statFields(Number(name)) : []
    return state === undefined || state === 'Z' ? [] : [{ pid: Number(name), group: Number(group) }]
  })
}

/** `R`, `S`, `T` (stopped), `Z` (dead, not yet fetched by its parent); undefined if gone. */
export function processState(pid: number): string | undefined {
  return statFields(pid)[0]
}

function cpuTicks(pid: number): number {
  const fields = statFields(pid)
  return Number(fields[11]) + Number(fields[12])
}

/** The fields of /proc/<pid>/stat after the name: state, parent, group, …; none if it is gone. */
function statFields(pid: number): string[] {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  } catch {
    return []
  }
}

export function now(): number {
  const [seconds, nanoseconds] = process.hrtime()
  return seconds * 1e3 + nanoseconds / 1e6
}

/** Our environment without what changes the behaviour of tsrun, colours or Node. */
export function cleanEnvironment(): NodeJS.ProcessEnv {
  const special =
    /^(TSRUN_(?!(HOME|RUNS_DIR)$)|PET_|npm_|JEST_)|^(NO_COLOR|FORCE_COLOR|NODE_OPTIONS|NODE_ENV)$/
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !special.test(name)))
}
