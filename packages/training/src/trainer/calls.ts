import { addFrames, addLabel, isTsrError, tsrError } from '@tsrun/core'

/** The calls of a trainer that have not ended. */
export class Calls {
  readonly #running = new Set<{ readonly name: string }>()

  /**
   * Runs a call of the trainer. The error of a collective in it begins with the name of the call, and shows
   * the line of the call even if the script has not awaited it.
   */
  async run<T>(name: string, body: () => Promise<T>): Promise<T> {
    const call = { name, origin: new Error() }
    this.#running.add(call)
    try {
      return await body()
    } catch (error) {
      // All errors of collectives name a group.
      if (isTsrError(error) && 'group' in error.facts) {
        addLabel(error, name)
        // Skip the message, this method and the method of the trainer.
        addFrames(error, String(call.origin.stack).split('\n').slice(3))
      }
      throw error
    } finally {
      this.#running.delete(call)
    }
  }

  /** @throws ERR_TSR_ARGUMENT if a call is in progress */
  checkEnded(next: string): void {
    const [call] = this.#running
    if (call === undefined) return
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: `${next} of a trainer`,
      value: `called during its ${call.name}()`,
      expected: `\`await run.${call.name}(...)\` before it`,
    })
  }
}
