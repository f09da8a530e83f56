import { monotonicNow } from '@tsrun/core'
import type { RankState } from '@tsrun/distributed/record'
import type { StderrTail } from '../logs/lines.ts'
import type { ErrorReport, ResourceUsage } from '../rank/control-message.ts'
import type { RankProcess } from '../processes/rank-process.ts'

/** Milliseconds. A script that is still running this long after an uncaught error has handled it. */
const SURVIVED = 10_000

/** What a rank was doing, as the status page told when the launcher began to stop the job. */
export interface RankPlace {
  readonly state: RankState
  /** The current operation, or the last one; undefined: none so far. */
  readonly operation: string | undefined
  readonly group: string | undefined
  readonly sequence: number
  /** Milliseconds that it had been in this state. */
  readonly milliseconds: number
  /** By SIGSTOP, or by a debugger. */
  readonly isStopped: boolean
}

/** How one rank ended, and all that is known about why. */
export interface RankOutcome {
  readonly rank: number
  readonly pid: number
  readonly exitCode: number | null
  readonly signal: NodeJS.Signals | null
  /** On the host's monotonic clock, milliseconds. */
  readonly startedAt: number
  readonly endedAt: number
  /** The signal with which the launcher stopped the rank; undefined: it ended by itself. */
  readonly stopSignal: 'SIGTERM' | 'SIGKILL' | undefined
  readonly stoppedAt: number
  /** The uncaught error before its end. */
  readonly error: ErrorReport | undefined
  /** The stack of the call of process.exit() with a code other than 0. */
  readonly exitedAt: string | undefined
  readonly stderrTail: readonly string[]
  /** V8 said that the JavaScript heap is exhausted. */
  readonly heapExhausted: boolean
  readonly usage: ResourceUsage | undefined
  /** Undefined for a rank that had not joined the job, and without a status page. */
  readonly place: RankPlace | undefined
}

/** The outcome of a rank that has ended. */
export function toOutcome(rank: RankProcess, tail: StderrTail, place?: RankPlace): RankOutcome {
  const endedAt = rank.end?.at ?? monotonicNow()
  const fatal = rank.error !== undefined && endedAt - rank.error.at < SURVIVED
  return {
    rank: rank.rank,
    pid: rank.pid,
    exitCode: rank.end?.exitCode ?? null,
    signal: rank.end?.signal ?? null,
    startedAt: rank.startedAt,
    endedAt,
    stopSignal: rank.stopSignal,
    stoppedAt: rank.stoppedAt,
    error: fatal ? rank.error : undefined,
    exitedAt: rank.exitReport?.exitedAt,
    stderrTail: tail.lines,
    heapExhausted: tail.heapExhausted,
    usage: rank.usage,
    place,
  }
}

/** Whether the rank ended because the launcher stopped it. */
export function wasStopped({ stopSignal, signal, heapExhausted }: RankOutcome): boolean {
  if (stopSignal === undefined || heapExhausted) return false
  return signal === null || signal === 'SIGTERM' || signal === stopSignal
}

/**
 * How the rank ended, or would have: the launcher may have stopped it while it was dying of an uncaught
 * error, with which Node exits with code 1.
 */
export function ownEnd(outcome: RankOutcome): Pick<RankOutcome, 'exitCode' | 'signal'> {
  if (wasStopped(outcome) && outcome.error !== undefined) return { exitCode: 1, signal: null }
  return outcome
}

export function succeeded({ exitCode, stopSignal }: RankOutcome): boolean {
  return exitCode === 0 && stopSignal === undefined
}

/** When the reason for the end arose: at the error, if there was one, else at the end itself. */
export function failedAt({ error, endedAt }: RankOutcome): number {
  return Math.min(error?.at ?? Infinity, endedAt)
}
