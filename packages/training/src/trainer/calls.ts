import { addFrames, addLabel, argumentError, isTsrError } from '@tsrun/core'

/** The calls of a trainer that have not ended. */
export class Calls {
  readonly #running = new Set<{ readonly name: string }>()

  /** Runs a call. Its errors show its line in the script, and those of its collectives begin with its name. */
  async run<T>(name: string, body: () => Promise<T>): Promise<T> {
    const call = { name, origin: new Error() }
    this.#running.add(call)
    try {
      return await body()
    } catch (error) {
      if (isTsrError(error)) {
        // All errors of collectives name a group.
        if ('group' in error.facts) addLabel(error, name)
        // After the message, this method and that of the trainer.
        addFrames(error, String(call.origin.stack).split('\n').slice(3))
      }
      throw error
    } finally {
      this.#running.delete(call)
    }
  }

  /** @throws ERR_TSR_ARGUMENT if a call is in progress */
  checkEnded(): void {
    const [call] = this.#running
    if (call === undefined) return
    const { name } = call
    throw argumentError(
      'dispose() of a trainer',
      `called during its ${name}()`,
      `\`await run.${name}(...)\` before it`,
    )
  }
}
