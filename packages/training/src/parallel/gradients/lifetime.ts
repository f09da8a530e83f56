import { argumentError, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'

/** The calls that must be awaited before the next backward pass. */
type Call = 'gradients()' | 'step()'

export type Lifetime = ReturnType<typeof trackLifetime>

/**
 * Tracks whether a replica is usable. A replica becomes unusable after `dispose`, and after its
 * first failed step, because ranks may have diverged.
 */
export function trackLifetime({ rank, ranks }: Pick<ProcessGroup, 'rank' | 'ranks'>) {
  /** The reason why the replica is unusable; undefined while it is usable. */
  let end: string | undefined
  let running: Call | undefined

  /** @throws ERR_TSR_REPLICA_ENDED */
  const check = () => {
    if (end === undefined) return
    // Name the rank in the world, because users compare errors of several groups.
    throw tsrError('ERR_TSR_REPLICA_ENDED', { rank: ranks[rank]!, reason: end })
  }
  /**
   * Checks that no conflicting call is in progress.
   *
   * @throws ERR_TSR_ARGUMENT while one of `calls` is in progress; ERR_TSR_REPLICA_ENDED
   */
  const checkAwaited = (what: string, calls: readonly Call[] = ['gradients()', 'step()']) => {
    check()
    const conflict = calls.find((call) => call === running)
    if (conflict === undefined) return
    throw argumentError(what, `made before ${conflict} has ended`, `\`await\` before ${conflict}`)
  }
  /** Makes the replica unusable after a failed step. @returns the argument `error` */
  const fail = (error: unknown) => {
    end ??= `a step has failed (${describe(error)})`
    return error
  }
  /** Runs a part of a step. If it fails, the replica becomes unusable. */
  const step = async <T>(part: () => Promise<T>): Promise<T> => {
    check()
    try {
      return await part()
    } catch (error) {
      throw fail(error)
    }
  }
  return {
    checkAwaited,
    fail,
    step,

    /** Runs a part of a step that must be awaited before other calls; see `checkAwaited`. */
    async alone<T>(call: Call, part: () => Promise<T>): Promise<T> {
      checkAwaited(call)
      running = call
      try {
        return await step(part)
      } finally {
        running = undefined
      }
    },

    get isDisposed() {
      return end === DISPOSED
    },

    /** Makes the replica unusable. @returns whether this was the first call */
    dispose() {
      const isFirst = end !== DISPOSED
      end = DISPOSED
      return isFirst
    },
  }
}

const DISPOSED = 'it was disposed'

function describe(error: unknown): string {
  const { code, message } = error as { code?: unknown; message?: unknown }
  return String(code ?? message)
}
