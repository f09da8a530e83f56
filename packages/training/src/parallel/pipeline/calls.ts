import { argumentError, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'

/**
 * The pipeline call that is in progress on each group. Two concurrent calls on one group would
 * receive each other's messages. A model of one stage has a key of its own instead of a group.
 */
const underWay = new WeakMap<object, string>()

/**
 * Allows only one call of a pipeline at a time, and no call after `end`. In a group it also refuses all
 * calls after a failed pass, because a failed pass leaves messages behind that were not received.
 *
 * @param group - undefined for a model of one stage, which exchanges no messages
 */
export function openCalls(group: ProcessGroup | undefined) {
  const key = group ?? {}
  let running: string | undefined
  let failure: Error | undefined
  let isDisposed = false

  const refuseWhile = (other: string | undefined, call: string) => {
    if (other === undefined) return
    if (group === undefined) {
      throw argumentError(call, `a model whose ${other}() is under way`, '`await` before each call')
    }
    const { rank, name } = group
    throw tsrError('ERR_TSR_PIPELINE_BUSY', { rank, group: name, call, running: other })
  }

  return {
    /**
     * Runs a call of the pipeline. Throws if a call of any pipeline on the group is in progress.
     *
     * @throws ERR_TSR_PIPELINE_BUSY (without a group ERR_TSR_ARGUMENT) while another call is in
     *   progress; ERR_TSR_ARGUMENT after `end`
     */
    async alone<T>(call: string, run: () => Promise<T>): Promise<T> {
      if (isDisposed) {
        const what = group === undefined ? 'model' : 'pipeline'
        throw argumentError(
          `the ${what}`,
          `one that was disposed before ${call}`,
          `a ${what} that was not disposed: create another one to continue`,
        )
      }
      refuseWhile(underWay.get(key), call)
      underWay.set(key, call)
      running = call
      try {
        return await run()
      } finally {
        running = undefined
        underWay.delete(key)
      }
    },

    /**
     * Runs the part of a call that exchanges messages. After a failure all later calls throw, because
     * pending receives would take their messages.
     *
     * @throws ERR_TSR_PIPELINE_FAILED after an earlier failure
     */
    async pass<T>(run: () => Promise<T>): Promise<T> {
      if (group === undefined) return await run()
      if (failure !== undefined) {
        const { rank, name } = group
        const facts = { rank, group: name, reason: failure.message }
        throw tsrError('ERR_TSR_PIPELINE_FAILED', facts, { cause: failure })
      }
      try {
        return await run()
      } catch (error) {
        failure = error instanceof Error ? error : new Error(String(error))
        throw error
      }
    },

    /**
     * Makes all later calls throw.
     *
     * @returns whether this is the first call of `end`
     * @throws ERR_TSR_PIPELINE_BUSY while a call is in progress; that call continues
     */
    end() {
      refuseWhile(running, 'dispose')
      const isFirst = !isDisposed
      isDisposed = true
      return isFirst
    },
  }
}
