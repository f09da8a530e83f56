import { host } from '#host'
import { tsrError } from './errors/tsr-error.ts'

/**
 * Milliseconds on the monotonic clock (CLOCK_MONOTONIC on Linux). All threads and processes of a
 * host share this clock, so times taken by different ranks of a host can be compared.
 */
export function monotonicNow(): number {
  return host.now()
}

/** A point in time by which something must be done. `Deadline.never` does not expire. */
export class Deadline {
  static readonly never = new Deadline(Infinity, Infinity)
  readonly #at: number
  readonly milliseconds: number

  private constructor(at: number, milliseconds: number) {
    this.#at = at
    this.milliseconds = milliseconds
  }

  /** @param milliseconds - time from now; Infinity for no deadline */
  static after(milliseconds: number): Deadline {
    return new Deadline(monotonicNow() + milliseconds, milliseconds)
  }

  /** Milliseconds left, at least 0. */
  remaining(): number {
    return Math.max(0, this.#at - monotonicNow())
  }

  get expired(): boolean {
    return monotonicNow() >= this.#at
  }
}

/**
 * Settles like `promise`, or rejects when the deadline expires or the signal aborts.
 *
 * @param what - names the work in the error message
 * @throws ERR_TSR_TIMEOUT, ERR_TSR_ABORTED
 */
export async function waitOrAbort<T>(
  promise: PromiseLike<T>,
  what: string,
  deadline: Deadline,
  signal?: AbortSignal,
): Promise<T> {
  let finish!: () => void
  const ended = new Promise<never>((_, reject) => {
    const abort = () => {
      reject(tsrError('ERR_TSR_ABORTED', { what }, { cause: signal?.reason }))
    }
    const expire = () => {
      reject(tsrError('ERR_TSR_TIMEOUT', { what, milliseconds: deadline.milliseconds }))
    }
    const left = deadline.remaining()
    const timer = left === Infinity ? undefined : setTimeout(expire, Math.min(left, 0x7fffffff))
    finish = () => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', abort)
    }
    if (signal?.aborted === true) abort()
    else signal?.addEventListener('abort', abort, { once: true })
  })
  try {
    return await Promise.race([ended, promise])
  } finally {
    finish()
  }
}
