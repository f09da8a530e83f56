import { once } from 'node:events'
import { constants } from 'node:os'
import { isatty } from 'node:tty'
import { monotonicNow } from '@tsrun/core'
import type { JobInput } from './input.ts'
import type { RankProcess } from './rank-process.ts'
import type { Interruption } from '../../protocol/nodes.ts'

export interface Interrupts {
  /** Aborts when the job must stop; the reason is an `Interruption`. */
  readonly stop: AbortSignal
  /** Aborts when the job must stop without a grace period, as after a second Ctrl-C. */
  readonly kill: AbortSignal
  /** Handles only these signals from now on; ignores the rest of SIGINT, SIGTERM, SIGHUP and SIGQUIT. */
  handle(signals: readonly NodeJS.Signals[]): void
  /** Stops the job, like a first signal. */
  interrupt(interruption: Interruption): void
  /** Ends the grace period, like a second signal. */
  force(): void
}

/** Milliseconds in which a repeated Ctrl-C is ignored, because npx forwards it a second time. */
const SAME_PRESS = 300

const usual = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const

/** 128 + SIGPIPE, which has no number on Windows. */
const READER_GONE = 141

/** EX_IOERR of sysexits.h: output was lost, for example on a full disk. */
export const OUTPUT_LOST = 74

/** The interruption of a job whose output cannot be written. No message if the reader is gone. */
export function outputClosed(error?: NodeJS.ErrnoException): Interruption {
  if (error !== undefined) return { exitCode: OUTPUT_LOST, reason: error.code ?? error.message }
  return { exitCode: READER_GONE, reason: undefined }
}

/** @param isHeld - whether signals come from `tsrun hosts`, whose terminal may be closed */
export function listenForInterrupts(isHeld: boolean): Interrupts {
  const stop = new AbortController()
  const kill = new AbortController()
  let signalled = false
  const interrupt = (interruption: Interruption): void => {
    // Count only signals: the same Ctrl-C may first end the reader of our output, which also aborts `stop`.
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
  // Without a listener, a signal would end the launcher and its ranks immediately.
  for (const signal of usual) process.on(signal, () => undefined)
  // Without a terminal (nohup, setsid), SIGHUP means that the terminal of another session was closed.
  handle(usual.filter((name) => name !== 'SIGHUP' || isHeld || [0, 1, 2].some(isatty)))
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

/** Forwards Ctrl-Z and `fg` to the process groups of the ranks. Returns a function that ends this. */
export function relayJobControl(
  ranks: readonly RankProcess[],
  input: JobInput | undefined,
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

/** Waits for the abort, and keeps the process alive until then. */
export async function stayUntilAborted(signal: AbortSignal): Promise<void> {
  const alive = setInterval(() => undefined, 60_000)
  await aborted(signal)
  clearInterval(alive)
}

export async function aborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort')
}
