import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'

/** Calls that have to be awaited before the next pass. */
type Call = 'gradients()' | 'step()'

/**
 * Tracks whether a replica may still be used: not after `dispose`, and not after its first failed step,
 * because ranks may have diverged.
 */
export class Lifetime {
  /** The rank in the world, because users compare errors of several groups. */
  readonly #rank: number
  /** Why the replica is unusable. */
  #end: string | undefined
  #running: Call | undefined

  constructor({ rank, ranks }: Pick<ProcessGroup, 'rank' | 'ranks'>) {
    this.#rank = ranks[rank]!
  }

  /** @throws ERR_TSR_REPLICA_ENDED */
  check(): void {
    if (this.#end === undefined) return
    throw tsrError('ERR_TSR_REPLICA_ENDED', { rank: this.#rank, reason: this.#end })
  }

  /**
   * Refuses an operation that must wait for pending calls.
   *
   * @throws ERR_TSR_ARGUMENT while one of `calls` is in progress; ERR_TSR_REPLICA_ENDED
   */
  checkAwaited(what: string, calls: readonly Call[] = ['gradients()', 'step()']): void {
    this.check()
    const running = calls.find((call) => call === this.#running)
    if (running === undefined) return
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: what,
      value: `made before ${running} has ended`,
      expected: `\`await\` before ${running}`,
    })
  }

  /** Runs a part of a step, and makes the replica unusable if it fails. */
  async step<T>(part: () => Promise<T>): Promise<T> {
    this.check()
    try {
      return await part()
    } catch (error) {
      throw this.fail(error)
    }
  }

  /** Like `step`, for a call that has to be awaited before others: see `checkAwaited`. */
  async alone<T>(call: Call, part: () => Promise<T>): Promise<T> {
    this.checkAwaited(call)
    this.#running = call
    try {
      return await this.step(part)
    } finally {
      this.#running = undefined
    }
  }

  /** Makes the replica unusable because a step has failed. @returns the error */
  fail(error: unknown): unknown {
    this.#end ??= `a step has failed (${describe(error)})`
    return error
  }

  get isDisposed(): boolean {
    return this.#end === DISPOSED
  }

  /** @returns whether this was the first call */
  dispose(): boolean {
    const isFirst = this.#end !== DISPOSED
    this.#end = DISPOSED
    return isFirst
  }
}

const DISPOSED = 'it was disposed'

function describe(error: unknown): string {
  const { code, message } = error as { code?: unknown; message?: unknown }
  return String(code ?? message)
}
