import { argumentError, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'

/** The calls that must be awaited before the next backward pass. */
type Call = 'gradients()' | 'step()'

/**
 * Tracks whether a replica is usable. A replica becomes unusable after `dispose`, and after its
 * first failed step, because ranks may have diverged.
 */
export class Lifetime {
  /** The rank in the world. Error messages use it because users compare errors of several groups. */
  readonly #rank: number
  /** The reason why the replica is unusable; undefined while it is usable. */
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
   * Checks that no conflicting call is in progress.
   *
   * @throws ERR_TSR_ARGUMENT while one of `calls` is in progress; ERR_TSR_REPLICA_ENDED
   */
  checkAwaited(what: string, calls: readonly Call[] = ['gradients()', 'step()']): void {
    this.check()
    const running = calls.find((call) => call === this.#running)
    if (running === undefined) return
    throw argumentError(what, `made before ${running} has ended`, `\`await\` before ${running}`)
  }

  /** Runs a part of a step. If it fails, the replica becomes unusable. */
  async step<T>(part: () => Promise<T>): Promise<T> {
    this.check()
    try {
      return await part()
    } catch (error) {
      throw this.fail(error)
    }
  }

  /** Runs a part of a step that must be awaited before other calls; see `checkAwaited`. */
  async alone<T>(call: Call, part: () => Promise<T>): Promise<T> {
    this.checkAwaited(call)
    this.#running = call
    try {
      return await this.step(part)
    } finally {
      this.#running = undefined
    }
  }

  /** Makes the replica unusable after a failed step. @returns the argument `error` */
  fail(error: unknown): unknown {
    this.#end ??= `a step has failed (${describe(error)})`
    return error
  }

  get isDisposed(): boolean {
    return this.#end === DISPOSED
  }

  /** Makes the replica unusable. @returns whether this was the first call */
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
