import { argumentError, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'

/**
 * The pipeline call that is in progress on each group. Two concurrent calls on one group would
 * receive each other's messages.
 */
const underWay = new WeakMap<ProcessGroup | Calls, string>()

/**
 * Allows only one call of a pipeline at a time, and no call after `end`. In a group it also refuses all
 * calls after a failed pass, because a failed pass leaves messages behind that were not received.
 */
export class Calls {
  readonly #group: ProcessGroup | undefined
  #running: string | undefined
  #failure: Error | undefined
  #isDisposed = false

  /** @param group - undefined for a model of one stage, which exchanges no messages */
  constructor(group: ProcessGroup | undefined) {
    this.#group = group
  }

  /**
   * Runs a call of the pipeline. Throws if a call of any pipeline on the group is in progress.
   *
   * @throws ERR_TSR_PIPELINE_BUSY (without a group ERR_TSR_ARGUMENT) while another call is in
   *   progress; ERR_TSR_ARGUMENT after `end`
   */
  async alone<T>(call: string, run: () => Promise<T>): Promise<T> {
    if (this.#isDisposed) {
      const what = this.#group === undefined ? 'model' : 'pipeline'
      throw argumentError(
        `the ${what}`,
        `one that was disposed before ${call}`,
        `a ${what} that was not disposed: create another one to continue`,
      )
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
   * Runs the part of a call that exchanges messages. After a failure all later calls throw, because
   * pending receives would take their messages.
   *
   * @throws ERR_TSR_PIPELINE_FAILED after an earlier failure
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
   * Makes all later calls throw.
   *
   * @returns whether this is the first call of `end`
   * @throws ERR_TSR_PIPELINE_BUSY while a call is in progress; that call continues
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
      throw argumentError(
        call,
        `a model whose ${running}() is under way`,
        '`await` before each call',
      )
    }
    const { rank, name: group } = this.#group
    throw tsrError('ERR_TSR_PIPELINE_BUSY', { rank, group, call, running })
  }
}
