import { tsrError } from './errors/tsr-error.ts'

/** A point in time by which something must be done; `Deadline.never` has none. */
export class Deadline {
  static readonly never = new Deadline(Infinity, Infinity)
  readonly #at: number
  readonly milliseconds: number

  private constructor(at: number, milliseconds: number) {
    this.#at = at
    this.milliseconds = milliseconds
  }

  /** @param milliseconds - from now; Infinity for none */
  static after(milliseconds: number): Deadline {
    return new Deadline(performance.now() + milliseconds, milliseconds)
  }

  /** Milliseconds left, at least 0. */
  remaining(): number {
    return Math.max(0, this.#at - performance.now())
  }

  get expired(): boolean {
    return performance.now() >= this.#at
  }
}

/**
 * Settles like `promise`, or rejects at the deadline or the abort, naming `what` was under way.
 *
 * @throws ERR_TSR_TIMEOUT, ERR_TSR_ABORTED
 */
export async function waitOrAbort<T>(
  promise: PromiseLike<T>,
  what: string,
  deadline: Deadline,
  signal?: AbortSignal,
): Promise<T> {
  return await new Promise<T>((resolve, reject) => {
    const abort = (): void => {
      finish()
      reject(tsrError('ERR_TSR_ABORTED', { what }, { cause: signal?.reason }))
    }
    const expire = (): void => {
      finish()
      reject(tsrError('ERR_TSR_TIMEOUT', { what, milliseconds: deadline.milliseconds }))
    }
    const finish = (): void => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', abort)
    }
    const left = deadline.remaining()
    const timer = left === Infinity ? undefined : setTimeout(expire, Math.min(left, 0x7fffffff))
    if (signal?.aborted === true) abort()
    else signal?.addEventListener('abort', abort, { once: true })
    // Also after an abort: a rejection that nobody handles would end the process.
    promise.then(
      (value) => {
        finish()
        resolve(value)
      },
      (error: unknown) => {
        finish()
        reject(error)
      },
    )
  })
}
