import { setTimeout as sleep } from 'node:timers/promises'
import type { Deadline } from './deadline.ts'

export interface RetryOptions {
  readonly deadline: Deadline
  /** First pause in milliseconds; doubles up to `longestPause`, with jitter. */
  readonly firstPause?: number
  readonly longestPause?: number
  readonly signal?: AbortSignal
  /** Whether another attempt makes sense; default: always. */
  readonly isTransient?: (error: unknown) => boolean
  /** Told of every failed attempt, for progress lines. */
  readonly onFailure?: (error: unknown, attempt: number) => void
}

/** Calls `attempt` until it succeeds; rethrows its last error at the deadline. */
export async function retry<T>(attempt: () => Promise<T>, options: RetryOptions): Promise<T> {
  const { deadline, firstPause = 20, longestPause = 1000, signal, isTransient, onFailure } = options
  for (let tries = 1; ; tries++) {
    try {
      return await attempt()
    } catch (error) {
      const pause =
        Math.min(longestPause, firstPause * 2 ** (tries - 1)) * (0.5 + Math.random() / 2)
      if (isTransient?.(error) === false || deadline.remaining() <= pause) throw error
      onFailure?.(error, tries)
      await sleep(pause, undefined, signal === undefined ? {} : { signal })
    }
  }
}
