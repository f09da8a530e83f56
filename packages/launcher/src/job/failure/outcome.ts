import { monotonicNow } from '@tsrun/core'
import type { StderrTail } from '../../logs/lines.ts'
import type { RankOutcome, RankPlace } from '../../protocol/nodes.ts'
import type { RankProcess } from '../process/rank-process.ts'

/** If a script still runs this many milliseconds after an uncaught error, it has handled the error. */
const SURVIVED = 10_000

export function toOutcome(process: RankProcess, tail: StderrTail, place?: RankPlace): RankOutcome {
  const { pid, startedAt, stopSignal, stoppedAt, error, usage } = process
  const { end } = process
  const endedAt = end?.at ?? monotonicNow()
  const fatal = error !== undefined && endedAt - error.at < SURVIVED
  return {
    rank: process.rank,
    pid,
    exitCode: end?.exitCode ?? null,
    signal: end?.signal ?? null,
    startedAt,
    endedAt,
    stopSignal,
    stoppedAt,
    error: fatal ? error : undefined,
    exitedAt: process.exitReport?.exitedAt,
    stderrTail: tail.lines,
    heapExhausted: tail.heapExhausted,
    usage,
    place,
  }
}

/** Whether the rank ended because the launcher stopped it. */
export function wasStopped({ stopSignal, signal, heapExhausted }: RankOutcome): boolean {
  if (stopSignal === undefined || heapExhausted) return false
  return signal === null || signal === 'SIGTERM' || signal === stopSignal
}

/**
 * Returns how the rank ended, or would have ended. If the launcher stopped the rank after an uncaught
 * error, the rank was already exiting with code 1.
 */
export function ownEnd(outcome: RankOutcome): Pick<RankOutcome, 'exitCode' | 'signal'> {
  if (wasStopped(outcome) && outcome.error !== undefined) return { exitCode: 1, signal: null }
  return outcome
}

export function succeeded({ exitCode, stopSignal }: RankOutcome): boolean {
  return exitCode === 0 && stopSignal === undefined
}

/** Returns the time of the uncaught error, or of the end if there was no error. */
export function failedAt({ error, endedAt }: RankOutcome): number {
  return Math.min(error?.at ?? Infinity, endedAt)
}
