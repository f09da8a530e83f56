import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'

/** Whether something may still be used: it ends with its first failed step, or when it is disposed. */
export class Lifetime {
  readonly #rank: number
  #end: string | undefined

  constructor(rank: number) {
    this.#rank = rank
  }

  /** @throws ERR_TSR_REPLICA_ENDED */
  check(): void {
    if (this.#end === undefined) return
    throw tsrError('ERR_TSR_REPLICA_ENDED', { rank: this.#rank, reason: this.#end })
  }

  /** Takes a gradient, which is free then; where that fails, its step has failed. */
  take(gradient: Tensor, add: () => void): void {
    try {
      this.check()
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
