import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'

/** Calls that have to be awaited before the next pass. */
type Call = 'gradients()' | 'step()'

/**
 * Whether a replica may still be used. It is unusable once it is disposed, and after its first failed step,
 * because ranks may have diverged.
 */
export class Lifetime {
  /** In the world, because errors of several groups are read side by side. */
  readonly #rank: number
  /** Why it has ended. */
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
   * Refuses what must not be done before certain calls have ended.
   *
   * @throws ERR_TSR_ARGUMENT while one of `calls` is under way; ERR_TSR_REPLICA_ENDED
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

  /** Runs a part of a step, and ends the life if it fails. */
  async step<T>(part: () => Promise<T>): Promise<T> {
    this.check()
    try {
      return await part()
    } catch (error) {
      throw this.fail(error)
    }
  }

  /** The same for a call that has to be awaited before others: see `checkAwaited`. */
  async alone<T>(call: Call, part: () => Promise<T>): Promise<T> {
    this.checkAwaited(call)
    this.#running = call
    try {
      return await this.step(part)
    } finally {
      this.#running = undefined
    }
  }

  /** Ends the life because a step has failed. @returns the error */
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
