import { constants } from 'node:os'
import { isatty } from 'node:tty'
import { monotonicNow } from '@tsrun/core'
import type { JobInput } from './input.ts'
import type { RankProcess } from './rank-process.ts'
import type { Interruption } from '../protocol/nodes.ts'

export interface Interrupts {
  /** Aborted when the job has to stop; the reason is an `Interruption`. */
  readonly stop: AbortSignal
  /** Aborted when it has to stop without grace, as at a second Ctrl-C. */
  readonly kill: AbortSignal
  /** Handles these signals from now on, and ignores the others of SIGINT, SIGTERM, SIGHUP and SIGQUIT. */
  handle(signals: readonly NodeJS.Signals[]): void
  /** Stops the job, as a first signal does. */
  interrupt(interruption: Interruption): void
  /** Ends the grace, as a second signal does. */
  force(): void
}

/** Milliseconds. npx passes the Ctrl-C of the terminal on, so it arrives twice; that is no second Ctrl-C. */
const SAME_PRESS = 300

const usual = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const

/** The exit code of EX_IOERR in sysexits.h: output is lost, as on a full disk. */
export const OUTPUT_LOST = 74

/** Stops the job when its output cannot be written; without a message if the reader is gone. */
export function outputClosed(error?: NodeJS.ErrnoException): Interruption {
  if (error !== undefined) return { exitCode: OUTPUT_LOST, reason: error.code ?? error.message }
  return { exitCode: 128 + constants.signals.SIGPIPE, reason: undefined }
}

/** Turns the signals that ask a program to stop into abort signals, until the process ends. */
export function listenForInterrupts(): Interrupts {
  const stop = new AbortController()
  const kill = new AbortController()
  let signalled = false
  const interrupt = (interruption: Interruption): void => {
    // The reader of a pipeline may end with the same Ctrl-C, and be noticed first.
    if (signalled) kill.abort(interruption)
    else stop.abort(interruption)
    signalled = true
  }
  const listeners = new Map<NodeJS.Signals, () => void>()
  const handle = (signals: readonly NodeJS.Signals[]): void => {
    for (const [signal, listener] of listeners) process.off(signal, listener)
    listeners.clear()
    for (const signal of signals) {
      const reason = signal === 'SIGINT' ? 'Ctrl-C' : signal
      let last = -Infinity
      const listener = (): void => {
        const now = monotonicNow()
        if (now - last < SAME_PRESS) return
        last = now
        interrupt({ exitCode: 128 + constants.signals[signal], reason })
      }
      listeners.set(signal, listener)
      process.on(signal, listener)
    }
  }
  // Without any listener a signal would end the launcher at once, and with it the ranks.
  for (const signal of usual) process.on(signal, () => undefined)
  // Without a terminal, as under nohup or setsid, SIGHUP says that another session's terminal was closed.
  handle(usual.filter((name) => name !== 'SIGHUP' || [0, 1, 2].some(isatty)))
  return {
    handle,
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
 * Passes Ctrl-Z and `fg` on to the ranks, which the terminal does not reach because they are in process
 * groups of their own. The returned function ends that.
 */
export function relayJobControl(
  ranks: readonly RankProcess[],
  input: Pick<JobInput, 'pause' | 'resume'> | undefined,
): () => void {
  const suspend = (): void => {
    input?.pause()
    for (const rank of ranks) rank.relay('SIGSTOP')
    process.kill(process.pid, 'SIGSTOP')
  }
  const resume = (): void => {
    for (const rank of ranks) rank.relay('SIGCONT')
    input?.resume()
  }
  process.on('SIGTSTP', suspend).on('SIGCONT', resume)
  return () => {
    process.off('SIGTSTP', suspend).off('SIGCONT', resume)
  }
}

/** As `aborted`, and keeps the process alive until then. */
export async function stayUntilAborted(signal: AbortSignal): Promise<void> {
  const alive = setInterval(() => undefined, 60_000)
  await aborted(signal)
  clearInterval(alive)
}

/** Resolves when the signal is aborted. */
export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    signal.addEventListener('abort', () => {
      resolve()
    })
  })
}
