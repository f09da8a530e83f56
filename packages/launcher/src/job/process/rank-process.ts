import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import type { Duplex, Readable, Writable } from 'node:stream'
import { setTimeout as pause } from 'node:timers/promises'
import { monotonicNow, tsrError } from '@tsrun/core'
import { isAvailable } from '@tsrun/native'
import type { RankFate } from '@tsrun/distributed/record'
import { LineSplitter } from '../../logs/lines.ts'
import {
  parseControlMessage,
  type CheckpointReport,
  type ControlMessage,
  type ErrorReport,
  type ExitReport,
  type FaultOrder,
  type ResourceUsage,
  type StackReport,
} from '../../protocol/control.ts'
import { CONTROL_FD } from '../../protocol/channel.ts'
import { describeLimits, readSystemFile } from '../placement/limits.ts'

/** How to start one rank. */
export interface RankPlan {
  readonly rank: number
  /** Variables added to the launcher's environment. */
  readonly environment: Readonly<Record<string, string>>
  /** The program and its arguments. */
  readonly command: readonly [string, ...string[]]
}

/** The standard input of a rank: none, a pipe from the launcher, or the launcher's. */
export type RankInput = 'ignore' | 'pipe' | 'inherit'

/** How a rank ended. */
export interface RankEnd {
  /** Milliseconds of the host's monotonic clock. */
  readonly at: number
  readonly exitCode: number | null
  readonly signal: NodeJS.Signals | null
}

/** Milliseconds for the reports of a rank to arrive after it has ended. */
const REPORT_TIME = 200

/** Milliseconds for a rank to answer with its stack. */
const STACK_TIME = 1500

/** A running process of a rank, which leads a process group. */
export class RankProcess {
  readonly rank: number
  readonly pid: number
  readonly startedAt = monotonicNow()
  readonly stdout: Readable
  readonly stderr: Readable
  /** Standard input of the rank, if the launcher writes it. */
  readonly stdin: Writable | null
  /** Resolves when the process has ended and its reports have arrived. */
  readonly ended: Promise<RankEnd>
  end: RankEnd | undefined
  error: ErrorReport | undefined
  onError: (report: ErrorReport) => void = () => undefined
  onCheckpoint: (report: CheckpointReport) => void = () => undefined
  exitReport: ExitReport | undefined
  /** The last usage from /proc, for ranks that cannot report it. */
  sampledUsage: ResourceUsage | undefined
  /** The last signal by which the launcher stopped the rank. */
  stopSignal: 'SIGTERM' | 'SIGKILL' | undefined
  stoppedAt = Infinity
  readonly #child: ChildProcess
  readonly #control: Duplex
  readonly #questions = new Map<number, (report: StackReport) => void>()
  #asked = 0
  #groupGone = false

  private constructor(rank: number, pid: number, child: ChildProcess) {
    this.rank = rank
    this.pid = pid
    this.#child = child
    this.stdout = child.stdout!
    this.stderr = child.stderr!
    this.stdin = child.stdin
    // A Duplex, because Node implements pipes as socket pairs.
    this.#control = child.stdio[CONTROL_FD] as Duplex
    readControlMessages(this.#control, (message) => {
      this.#take(message)
    })
    this.ended = this.#waitForEnd(this.#control)
  }

  /** @throws ERR_TSR_SPAWN */
  static async start(
    plan: RankPlan,
    worldSize: number,
    env: NodeJS.ProcessEnv,
    input: RankInput = 'ignore',
  ): Promise<RankProcess> {
    const [program, ...args] = plan.command
    try {
      const child = spawn(program, args, {
        // `detached` starts a session. With koffi, the rank makes only a process group; see
        // `leadProcessGroup`.
        detached: !isAvailable().available,
        // On Windows, a session has a window.
        windowsHide: true,
        env: {
          ...env,
          ...plan.environment,
          TSRUN_CONTROL_FD: String(CONTROL_FD),
          TSRUN_LAUNCHER_PID: String(process.pid),
        },
        stdio: [input, 'pipe', 'pipe', 'pipe'],
      })
      // Without a process ID, an error event explains why.
      if (child.pid === undefined) throw (await once(child, 'error'))[0] as Error
      return new RankProcess(plan.rank, child.pid, child)
    } catch (cause) {
      const { message, code = '' } = cause as NodeJS.ErrnoException
      const reason = message + (['EAGAIN', 'ENOMEM'].includes(code) ? describeLimits() : '')
      throw tsrError('ERR_TSR_SPAWN', { rank: plan.rank, worldSize, reason }, { cause })
    }
  }

  /** Resolves when the process has ended and no other process holds its output streams. */
  get closed(): Promise<void> {
    const open = [this.stdout, this.stderr].filter((stream) => !stream.closed)
    return Promise.all(open.map((stream) => onceClosed(stream))).then(() => undefined)
  }

  /**
   * Requests the stack of the main thread. Undefined if there is no answer, because the process has
   * ended, is stopped, or is not Node.
   */
  async stack(): Promise<StackReport | undefined> {
    if (this.#hasExited || !this.#control.writable) return undefined
    const id = ++this.#asked
    const silence = new AbortController()
    try {
      const answer = new Promise<StackReport>((resolve) => {
        this.#questions.set(id, resolve)
        this.#control.write(`${id}\n`)
      })
      const limit = pause(STACK_TIME, undefined, { signal: silence.signal }).catch(() => undefined)
      return await Promise.race([answer, limit, this.ended.then(() => undefined)])
    } finally {
      silence.abort()
      this.#questions.delete(id)
    }
  }

  /** How the process ended; undefined while it runs. */
  get fate(): RankFate | undefined {
    const { end, error, stopSignal } = this
    if (end === undefined) return undefined
    const isVictim = end.signal === null && error !== undefined && blamesOthers(error)
    return end.exitCode === 0 || stopSignal !== undefined || isVictim ? 'ended' : 'died'
  }

  get usage(): ResourceUsage | undefined {
    return this.exitReport?.usage ?? this.sampledUsage
  }

  /**
   * Whether any process of the rank's group exists. A group that is gone is never signalled again,
   * because its ID may be reused.
   */
  get groupAlive(): boolean {
    // A process that has just started may not have made its group yet.
    this.#groupGone ||= this.#hasExited && !sendSignal(-this.pid, 0)
    return !this.#groupGone
  }

  /** Signals the whole group to stop. */
  stop(signal: 'SIGTERM' | 'SIGKILL'): void {
    if (!this.groupAlive) return
    if (!this.#hasExited) {
      if (this.stopSignal === undefined) this.stoppedAt = monotonicNow()
      this.stopSignal = signal
    }
    this.#signal(signal)
    // A stopped process (SIGSTOP) handles SIGTERM only after it continues.
    if (signal === 'SIGTERM') this.#signal('SIGCONT')
  }

  /** Forwards Ctrl-Z and `fg`. */
  relay(signal: 'SIGSTOP' | 'SIGCONT'): void {
    if (this.groupAlive) this.#signal(signal)
  }

  /** Injects a fault into the main thread, even while it is busy. */
  inject(fault: FaultOrder): void {
    if (!this.#hasExited && this.#control.writable)
      this.#control.write(`${JSON.stringify(fault)}\n`)
  }

  /** Sends a signal only to the process, like another program: the rank does not count as stopped. */
  signal(signal: NodeJS.Signals): void {
    if (!this.#hasExited) this.#child.kill(signal)
  }

  /** Closes the streams, even if another process still holds them open. */
  release(): void {
    this.stdout.destroy()
    this.stderr.destroy()
  }

  get #hasExited(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null
  }

  #signal(signal: NodeJS.Signals): void {
    if (!sendSignal(-this.pid, signal)) this.#child.kill(signal)
  }

  #take(message: ControlMessage): void {
    if (message.kind === 'stack') this.#questions.get(message.id)?.(message)
    else if (message.kind === 'exit') this.exitReport = message
    else if (message.kind === 'checkpoint') this.onCheckpoint(message)
    else {
      this.error = message
      this.onError(message)
    }
  }

  async #waitForEnd(control: Readable): Promise<RankEnd> {
    const reported = onceClosed(control)
    const end = await new Promise<RankEnd>((resolve) => {
      this.#child.once('exit', (exitCode, signal) => {
        resolve({ at: monotonicNow(), exitCode, signal })
      })
    })
    // Only the rank holds the other end, unless it forked without exec.
    await Promise.race([reported, pause(REPORT_TIME)])
    this.end = end
    return end
  }
}

/** Whether the error says that another rank failed or did not arrive. */
export function blamesOthers({ distance, peers }: ErrorReport): boolean {
  return distance > 0 || peers.length > 0
}

function onceClosed(stream: Readable): Promise<void> {
  return new Promise((resolve) => {
    if (stream.closed) resolve()
    else stream.once('close', resolve)
  })
}

/** Reads the control pipe of a rank. Ignores invalid messages. */
function readControlMessages(pipe: Readable, onMessage: (message: ControlMessage) => void): void {
  const splitter = new LineSplitter(1024 * 1024)
  pipe.on('data', (chunk: Buffer) => {
    for (const { text } of splitter.push(chunk)) {
      const message = parseControlMessage(text)
      if (message !== undefined) onMessage(message)
    }
  })
  // A connection reset adds no information: the process has ended.
  pipe.on('error', () => undefined)
}

/**
 * The groups that have a running member. Unlike `sendSignal`, ignores zombies that a slow init has not
 * reaped yet. Undefined without /proc.
 */
export function livingGroups(): Set<number> | undefined {
  const groups = new Set<number>()
  try {
    for (const name of readdirSync('/proc')) {
      const [state, , group] = /^\d+$/.test(name) ? (statFields(name) ?? []) : []
      if (state !== undefined && state !== 'Z' && state !== 'X') groups.add(Number(group))
    }
  } catch {
    return undefined
  }
  return groups
}

/**
 * The fields of /proc/<pid>/stat after the name: state, parent, group, … Undefined if the process is
 * gone.
 */
export function statFields(pid: number | string): string[] | undefined {
  const stat = readSystemFile(`/proc/${pid}/stat`)
  // The name, in parentheses, may contain spaces.
  return stat?.slice(stat.lastIndexOf(')') + 2).split(' ')
}

/**
 * Sends a signal; 0 sends nothing.
 *
 * @param id - a process ID; if negative, that of a process group
 * @returns whether the process or group exists
 */
export function sendSignal(id: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(id, signal)
  } catch (error) {
    // EPERM: the process exists, but belongs to another user now.
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
