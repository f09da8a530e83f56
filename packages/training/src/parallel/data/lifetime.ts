import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'

/** What has to have ended before the next pass. */
type Call = 'gradients()' | 'step()'

/** Whether something may still be used: it ends with its first failed step, or when it is disposed. */
export class Lifetime {
  /** In the world: errors of several groups are read side by side. */
  readonly #rank: number
  #end: string | undefined
  /** The call that `alone` runs. */
  #running: string | undefined

  constructor({ rank, ranks }: Pick<ProcessGroup, 'rank' | 'ranks'>) {
    this.#rank = ranks[rank]!
  }

  /** @throws ERR_TSR_REPLICA_ENDED */
  check(): void {
    if (this.#end === undefined) return
    throw tsrError('ERR_TSR_REPLICA_ENDED', { rank: this.#rank, reason: this.#end })
  }

  /**
   * Refuses what cannot be done before another call has ended.
   *
   * @param calls - those that it has to wait for
   * @throws ERR_TSR_ARGUMENT while one of them is under way; ERR_TSR_REPLICA_ENDED
   */
  checkAwaited(what: string, calls: readonly Call[] = ['gradients()', 'step()']): void {
    this.check()
    const running = calls.find((call) => call === this.#running)
    if (running === undefined) return
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: what,
      value: `made before ${running} has ended`,
      expected: `\`await\` in front of ${running}`,
    })
  }

  /** Takes a gradient, which is free then; where that fails, its step has failed. */
  take(gradient: Tensor, add: () => void): void {
    try {
      this.checkAwaited('a backward pass')
      add()
    } catch (error) {
      throw this.#fail(error)
    } finally {
      gradient.dispose()
    }
  }

  /** Runs a part of a step; where it fails, nobody knows what the other ranks have got. */
  async step<T>(part: () => Promise<T>): Promise<T> {
    this.check()
    try {
      return await part()
    } catch (error) {
      throw this.#fail(error)
    }
  }

  /** The same, of a call that has to be awaited before others: see `checkAwaited`. */
  async alone<T>(call: Call, part: () => Promise<T>): Promise<T> {
    this.checkAwaited(call)
    this.#running = call
    try {
      return await this.step(part)
    } finally {
      this.#running = undefined
    }
  }

  /** @returns whether it was not disposed before */
  dispose(): boolean {
    const isFirst = this.#end !== DISPOSED
    this.#end = DISPOSED
    return isFirst
  }

  #fail(error: unknown): unknown {
    this.#end ??= `a step has failed (${describe(error)})`
    return error
  }
}

const DISPOSED = 'it was disposed'

function describe(error: unknown): string {
  const { code, message } = error as { code?: unknown; message?: unknown }
  return String(code ?? message)
}
