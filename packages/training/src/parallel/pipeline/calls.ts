import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'

/**
 * The pipeline call in progress on each group. Concurrent calls on a group would receive each other's
 * messages, even if they belong to different pipelines.
 */
const underWay = new WeakMap<ProcessGroup | Calls, string>()

/**
 * Allows one call of a pipeline at a time, and none after `end`. With a group, it also refuses calls
 * after a failed pass, which leaves messages behind.
 */
export class Calls {
  readonly #group: ProcessGroup | undefined
  /** The call of this pipeline that is in progress. */
  #running: string | undefined
  #failure: Error | undefined
  #isDisposed = false

  /** @param group - undefined for a whole model, which communicates with no other stage */
  constructor(group: ProcessGroup | undefined) {
    this.#group = group
  }

  /**
   * Runs a call unless this or another pipeline has a call in progress on the group.
   *
   * @throws ERR_TSR_PIPELINE_BUSY, or ERR_TSR_ARGUMENT without a group; ERR_TSR_ARGUMENT after `end`
   */
  async alone<T>(call: string, run: () => Promise<T>): Promise<T> {
    if (this.#isDisposed) {
      const what = this.#group === undefined ? 'model' : 'pipeline'
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: `the ${what}`,
        value: `one that was disposed before ${call}`,
        expected: `a ${what} that was not disposed: create another one to continue`,
      })
    }
    const key = this.#group ?? this
    this.#refuseWhile(underWay.get(key), call)
    underWay.set(key, call)
    this.#running = call
    try {
      return await run()
    } finally {
      this.#running = undefined
      underWay.delete(key)
    }
  }

  /**
   * Runs the part of a call that exchanges messages. If it fails, it leaves receives behind that would
   * take the messages of the next call.
   *
   * @throws ERR_TSR_PIPELINE_FAILED after a failure
   */
  async pass<T>(run: () => Promise<T>): Promise<T> {
    if (this.#group === undefined) return await run()
    if (this.#failure !== undefined) {
      const { rank, name: group } = this.#group
      const { message: reason } = this.#failure
      throw tsrError('ERR_TSR_PIPELINE_FAILED', { rank, group, reason }, { cause: this.#failure })
    }
    try {
      return await run()
    } catch (error) {
      this.#failure = error instanceof Error ? error : new Error(String(error))
      throw error
    }
  }

  /**
   * Refuses all later calls.
   *
   * @returns whether this is the first call
   * @throws ERR_TSR_PIPELINE_BUSY while a call is pending, which continues
   */
  end(): boolean {
    this.#refuseWhile(this.#running, 'dispose')
    const isFirst = !this.#isDisposed
    this.#isDisposed = true
    return isFirst
  }

  #refuseWhile(running: string | undefined, call: string): void {
    if (running === undefined) return
    if (this.#group === undefined) {
      const value = `a model whose ${running}() is under way`
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: call,
        value,
        expected: '`await` before each call',
      })
    }
    const { rank, name: group } = this.#group
    throw tsrError('ERR_TSR_PIPELINE_BUSY', { rank, group, call, running })
  }
}
