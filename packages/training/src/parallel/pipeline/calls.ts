import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'

/** The call of a pipeline that is under way over each group: two would take each other's messages. */
const underWay = new WeakMap<ProcessGroup, string>()

/** Which calls a pipeline may make: one at a time, none after a failure in the middle, or its end. */
export class Calls {
  readonly #group: ProcessGroup
  /** The call of this pipeline that is under way. */
  #running: string | undefined
  /** Why the first pass that failed did. */
  #failure: Error | undefined
  #isDisposed = false

  constructor(group: ProcessGroup) {
    this.#group = group
  }

  /**
   * Runs a call while no other one runs over the group, of this pipeline or of another one.
   *
   * @throws ERR_TSR_PIPELINE_BUSY; ERR_TSR_ARGUMENT after `end`
   */
  async alone<T>(call: string, run: () => Promise<T>): Promise<T> {
    if (this.#isDisposed) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: 'the pipeline',
        value: `one that was disposed before ${call}`,
        expected: 'one that is not; make another one to go on',
      })
    }
    this.#refuseWhile(underWay.get(this.#group), call)
    underWay.set(this.#group, call)
    this.#running = call
    try {
      return await run()
    } finally {
      this.#running = undefined
      underWay.delete(this.#group)
    }
  }

  /**
   * Runs the messages of a call. A pass that fails leaves receives behind that would take those of the
   * next one.
   *
   * @throws ERR_TSR_PIPELINE_FAILED after it
   */
  async pass<T>(run: () => Promise<T>): Promise<T> {
    const { rank, name: group } = this.#group
    if (this.#failure !== undefined) {
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
   * Lets no call follow.
   *
   * @returns whether it is the first time
   * @throws ERR_TSR_PIPELINE_BUSY while one is under way, which goes on
   */
  end(): boolean {
    this.#refuseWhile(this.#running, 'dispose')
    const isFirst = !this.#isDisposed
    this.#isDisposed = true
    return isFirst
  }

  #refuseWhile(running: string | undefined, call: string): void {
    if (running === undefined) return
    const { rank, name: group } = this.#group
    throw tsrError('ERR_TSR_PIPELINE_BUSY', { rank, group, call, running })
  }
}
