import { constants } from 'node:os'
import { monotonicNow } from '@tsrun/core'
import type { RankProcess } from './rank-process.ts'

/** Why a job is stopped from outside. */
export interface Interruption {
  /** What the launcher exits with. */
  readonly exitCode: number
  /** For the message; undefined when nothing should be said. */
  readonly reason: string | undefined
}

export interface Interrupts {
  /** Aborted, with an `Interruption` as reason, when the job has to stop. */
  readonly stop: AbortSignal
  /** Aborted when it has to stop without grace: a second Ctrl-C. */
  readonly kill: AbortSignal
  /** Stops the job, as a first signal does. */
  interrupt(interruption: Interruption): void
  /** Ends the grace, as a second signal does. */
  force(): void
}

/** Milliseconds: npx passes the terminal's Ctrl-C on a second time; that is no second Ctrl-C. */
const SAME_PRESS = 300

const handled = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const

/** Ends the job quietly: nobody reads its output any more (exit code as if by SIGPIPE). */
export const outputClosed: Interruption = { exitCode: 128 + 13, reason: undefined }

/** Turns the signals that ask a program to stop into abort signals, as long as the process lives. */
export function listenForInterrupts(): Interrupts {
  const stop = new AbortController()
  const kill = new AbortController()
  let signalled = false
  const interrupt = (interruption: Interruption): void => {
    // A pipeline's reader may die of the same Ctrl-C, and be noticed first: no second Ctrl-C.
    if (signalled) kill.abort(interruption)
    else stop.abort(interruption)
    signalled = true
  }
  for (const signal of handled) {
    const reason = signal === 'SIGINT' ? 'Ctrl-C' : signal
    let last = -Infinity
    process.on(signal, () => {
      const now = monotonicNow()
      if (now - last < SAME_PRESS) return
      last = now
      interrupt({ exitCode: 128 + constants.signals[signal], reason })
    })
  }
  return {
    stop: stop.signal,
    kill: kill.signal,
    interrupt: (interruption) => {
      stop.abort(interruption)
    },
    force: () => {
      kill.abort(stop.signal.reason)
    },
  }
}

/**
 * Lets Ctrl-Z and `fg` reach the ranks, which the terminal does not know because they are in
 * process groups of their own. The returned function ends it.
 */
export function relayJobControl(ranks: readonly RankProcess[]): () => void {
  const suspend = (): void => {
    for (const rank of ranks) rank.relay('SIGSTOP')
    process.kill(process.pid, 'SIGSTOP')
  }
  const resume = (): void => {
    for (const rank of ranks) rank.relay('SIGCONT')
  }
  process.on('SIGTSTP', suspend).on('SIGCONT', resume)
  return () => {
    process.off('SIGTSTP', suspend).off('SIGCONT', resume)
  }
}
