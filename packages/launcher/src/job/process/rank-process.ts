import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import type { Duplex, Readable } from 'node:stream'
import { setTimeout as pause } from 'node:timers/promises'
import { monotonicNow, namesIn, tsrError } from '@tsrun/core'
import { isAvailable } from '@tsrun/native'
import type { RankFate } from '@tsrun/distributed/record'
import { lineSplitter } from '../../logs/lines.ts'
import {
  parseControlMessage,
  type CheckpointReport,
  type ErrorReport,
  type ExitReport,
  type FaultOrder,
  type ResourceUsage,
  type StackReport,
} from '../../protocol/control.ts'
import { CONTROL_FD } from '../../protocol/channel.ts'
import { describeLimits, readSystemFile } from '../placement/limits.ts'

export interface RankPlan {
  readonly rank: number
  readonly environment: Readonly<Record<string, string>>
  readonly command: readonly [string, ...string[]]
}

/** The standard input of a rank: none, a pipe from the launcher, or the launcher's own input. */
export type RankInput = 'ignore' | 'pipe' | 'inherit'

interface RankEnd {
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
export type RankProcess = ReturnType<typeof followRank>

export async function startRank(
  { rank, environment, command: [program, ...args] }: RankPlan,
  worldSize: number,
  env: NodeJS.ProcessEnv,
  input: RankInput = 'ignore',
): Promise<RankProcess> {
  try {
    const child = spawn(program, args, {
      // Without koffi, start a new session. With koffi, the rank itself creates a process group (see
      // `leadProcessGroup`).
      detached: !isAvailable().available,
      // On Windows, a detached process would open a console window.
      windowsHide: true,
      env: {
        ...env,
        ...environment,
        TSRUN_CONTROL_FD: String(CONTROL_FD),
        TSRUN_LAUNCHER_PID: String(process.pid),
      },
      stdio: [input, 'pipe', 'pipe', 'pipe'],
    })
    // Without a process ID, an error event explains why.
    if (child.pid === undefined) throw (await once(child, 'error'))[0] as Error
    return followRank(rank, child.pid, child)
  } catch (cause) {
    const { message, code = '' } = cause as NodeJS.ErrnoException
    const reason = message + (['EAGAIN', 'ENOMEM'].includes(code) ? describeLimits() : '')
    throw tsrError('ERR_TSR_SPAWN', { rank, worldSize, reason }, { cause })
  }
}

function followRank(rank: number, pid: number, child: ChildProcess) {
  // A Duplex, because Node implements pipes as socket pairs.
  const control = child.stdio[CONTROL_FD] as Duplex
  const questions = new Map<number, (report: StackReport) => void>()
  let asked = 0
  let isGroupGone = false

  const hasExited = (): boolean => child.exitCode !== null || child.signalCode !== null
  const signalGroup = (signal: NodeJS.Signals): void => {
    if (!sendSignal(-pid, signal)) child.kill(signal)
  }
  /** Ignores invalid messages. */
  const take = (line: string): void => {
    const message = parseControlMessage(line)
    if (message?.kind === 'stack') questions.get(message.id)?.(message)
    if (message?.kind === 'exit') self.exitReport = message
    if (message?.kind === 'checkpoint') self.onCheckpoint(message)
    if (message?.kind === 'error') {
      self.error = message
      self.onError(message)
    }
  }
  const waitForEnd = async (): Promise<RankEnd> => {
    const reported = onceClosed(control)
    const end = await new Promise<RankEnd>((resolve) => {
      child.once('exit', (exitCode, signal) => {
        resolve({ at: monotonicNow(), exitCode, signal })
      })
    })
    // Limit the wait: if the rank forked without exec, the child keeps the control pipe open.
    await Promise.race([reported, pause(REPORT_TIME)])
    self.end = end
    return end
  }

  const self = {
    rank,
    pid,
    startedAt: monotonicNow(),
    stdout: child.stdout!,
    stderr: child.stderr!,
    /** Standard input of the rank, if the launcher writes it. */
    stdin: child.stdin,
    /** Resolves when the process has ended and its reports have arrived. */
    ended: waitForEnd(),
    end: undefined as RankEnd | undefined,
    error: undefined as ErrorReport | undefined,
    onError: (() => undefined) as (report: ErrorReport) => void,
    onCheckpoint: (() => undefined) as (report: CheckpointReport) => void,
    exitReport: undefined as ExitReport | undefined,
    /** The last usage from /proc, for ranks that cannot report it. */
    sampledUsage: undefined as ResourceUsage | undefined,
    /** The last signal by which the launcher stopped the rank. */
    stopSignal: undefined as 'SIGTERM' | 'SIGKILL' | undefined,
    stoppedAt: undefined as number | undefined,

    /** Resolves when the process has ended and no other process holds its output streams. */
    get closed(): Promise<unknown> {
      return Promise.all([self.stdout, self.stderr].map(onceClosed))
    },

    /**
     * Requests the stack of the main thread; undefined if the process has ended, is stopped, or is not
     * Node.
     */
    async stack(): Promise<StackReport | undefined> {
      if (hasExited() || !control.writable) return undefined
      const id = ++asked
      const answer = new Promise<StackReport | undefined>((resolve) => {
        questions.set(id, resolve)
        control.write(`${id}\n`)
        setTimeout(resolve, STACK_TIME, undefined).unref()
        void self.ended.then(() => {
          resolve(undefined)
        })
      })
      return answer.finally(() => questions.delete(id))
    },

    /** How the process ended; undefined while it runs. */
    get fate(): RankFate | undefined {
      const { end, error, stopSignal } = self
      if (end === undefined) return undefined
      const isVictim = end.signal === null && error !== undefined && blamesOthers(error)
      return end.exitCode === 0 || stopSignal !== undefined || isVictim ? 'ended' : 'died'
    },

    get usage(): ResourceUsage | undefined {
      return self.exitReport?.usage ?? self.sampledUsage
    },

    /**
     * Whether any process of the rank's group exists. A group that is gone is never signalled again,
     * because its ID may be reused.
     */
    get groupAlive(): boolean {
      // A process that has just started may not have made its group yet.
      isGroupGone ||= hasExited() && !sendSignal(-pid, 0)
      return !isGroupGone
    },

    /** Signals the whole group to stop. */
    stop(signal: 'SIGTERM' | 'SIGKILL'): void {
      if (!self.groupAlive) return
      if (!hasExited()) {
        self.stoppedAt ??= monotonicNow()
        self.stopSignal = signal
      }
      signalGroup(signal)
      // A stopped process (SIGSTOP) handles SIGTERM only after it continues.
      if (signal === 'SIGTERM') signalGroup('SIGCONT')
    },

    relay(signal: 'SIGSTOP' | 'SIGCONT'): void {
      if (self.groupAlive) signalGroup(signal)
    },

    /** Injects a fault into the main thread, even while it is busy. */
    inject(fault: FaultOrder): void {
      if (!hasExited() && control.writable) control.write(`${JSON.stringify(fault)}\n`)
    },

    /** Sends a signal to the process alone, like another program. The rank does not count as stopped. */
    signal(signal: NodeJS.Signals): void {
      if (!hasExited()) child.kill(signal)
    },

    /** Closes the streams, even if another process still holds them open. */
    release(): void {
      self.stdout.destroy()
      self.stderr.destroy()
    },
  }
  const splitter = lineSplitter(1024 * 1024)
  control.on('data', (chunk: Buffer) => {
    for (const { text } of splitter.push(chunk)) take(text)
  })
  // A connection reset adds no information: the process has ended.
  control.on('error', () => undefined)
  return self
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

/**
 * The groups that have a running member. Ignores zombies that a slow init has not reaped yet. Empty without
 * /proc.
 */
export function livingGroups(): Set<number> {
  const groups = new Set<number>()
  for (const name of namesIn('/proc')) {
    const [state, , group] = /^\d+$/.test(name) ? (statFields(name) ?? []) : []
    if (state !== undefined && state !== 'Z' && state !== 'X') groups.add(Number(group))
  }
  return groups
}

/** The fields of /proc/<pid>/stat after the name: state, parent, group, … Undefined without the file. */
export function statFields(pid: number | string): string[] | undefined {
  const stat = readSystemFile(`/proc/${pid}/stat`)
  // The name, in parentheses, may contain spaces.
  return stat?.slice(stat.lastIndexOf(')') + 2).split(' ')
}

/**
 * Sends a signal; 0 sends nothing.
 *
 * @param id - a process ID; if negative, the ID of a process group
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
