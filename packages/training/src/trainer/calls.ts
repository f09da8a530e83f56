import { addFrames, addLabel, argumentError, isTsrError } from '@tsrun/core'

/** The calls of a trainer that have not ended. */
export function trainerCalls() {
  const running = new Set<{ readonly name: string }>()
  return {
    /** Runs a call. Adds its line in the script to errors, and its name to errors of collectives. */
    async run<T>(name: string, body: () => Promise<T>): Promise<T> {
      const call = { name, origin: new Error() }
      running.add(call)
      try {
        return await body()
      } catch (error) {
        if (isTsrError(error)) {
          // Skip the message, this method and the method of the trainer.
          const frames = String(call.origin.stack).split('\n').slice(3)
          // Only errors of collectives have a group. Other stacks may begin with the line of a callback.
          if ('group' in error.facts) {
            addLabel(error, name)
            addFrames(error, frames)
          } else appendFrames(error, frames)
        }
        throw error
      } finally {
        running.delete(call)
      }
    },

    /** @throws ERR_TSR_ARGUMENT if a call is in progress */
    checkEnded() {
      const [call] = running
      if (call === undefined) return
      const { name } = call
      throw argumentError(
        'dispose() of a trainer',
        `called during its ${name}()`,
        `\`await run.${name}(...)\` before it`,
      )
    },
  }
}

/** Appends frames, unless the stack already has the line of the first frame. */
function appendFrames(error: Error, frames: readonly string[]): void {
  const { stack = '' } = error
  const [place = ''] = /[^\s(]+:\d+:/.exec(frames[0] ?? '') ?? []
  if (!stack.includes(place)) error.stack = [stack, ...frames].join('\n')
}
