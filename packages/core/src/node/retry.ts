import { setTimeout as sleep } from 'node:timers/promises'
import type { Deadline } from '../time.ts'

/** The first and the longest pause in milliseconds. Pauses double from try to try, with jitter. */
const FIRST_PAUSE = 20
const LONGEST_PAUSE = 1000

/** Options of `retry`. */
export interface RetryOptions {
  readonly deadline: Deadline
  readonly signal?: AbortSignal | undefined
  /** Whether to try again after this error. By default every error is retried. */
  readonly isTransient?: (error: unknown) => boolean
  /** Called after each failed try that will be repeated, for progress messages. */
  readonly onFailure?: (error: unknown, tries: number) => void
}

/** Calls `run` until it succeeds. Rethrows its last error when the deadline expires. */
export async function retry<T>(run: () => Promise<T>, options: RetryOptions): Promise<T> {
  const { deadline, signal, isTransient, onFailure } = options
  for (let tries = 1; ; tries++) {
    try {
      return await run()
    } catch (error) {
      const pause =
        Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (tries - 1)) * (0.5 + Math.random() / 2)
      if (isTransient?.(error) === false || deadline.remaining() <= pause) throw error
      onFailure?.(error, tries)
      await sleep(pause, undefined, { signal })
    }
  }
}
