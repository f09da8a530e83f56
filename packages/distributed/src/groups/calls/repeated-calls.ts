import type { Arena } from '../../arena/arena.ts'
import { dtypesOf } from '../../dtype.ts'

/** The arguments of the last blocking call of a collective. */
interface Last {
  readonly args: readonly unknown[]
  /** Whether the call has been repeated. */
  isRepeated: boolean
  /** Prepared at the third call in a row with these arguments. */
  prepared: { runSync(): void } | undefined
}

/**
 * Prepares the blocking collectives of a group at the third call in a row with the same arguments.
 * Further calls then check and place nothing.
 *
 * The returned function runs a call if its arguments are those of the last two. It returns whether the
 * call has run. Its argument `prepare` makes the call in the mode `prepared`.
 */
export function createRepeatedCalls(arena: Arena) {
  const lastCalls = new Map<string, Last>()

  /**
   * Whether checking the arguments again gives the same result. Views of the arena keep their place
   * and length. A view that may have several dtypes has the one of its block, until that is freed.
   */
  const areFixed = (args: readonly unknown[]): boolean =>
    args.every((arg) => {
      if (!ArrayBuffer.isView(arg))
        return arg === null || arg === undefined || typeof arg === 'number'
      return arena.contains(arg) && dtypesOf(arg).length === 1
    })

  return (name: string, args: readonly unknown[], prepare: () => unknown): boolean => {
    const last = lastCalls.get(name)
    if (last === undefined || !areSame(last.args, args)) {
      // Other arguments are not kept, because they may hold much memory.
      if (areFixed(args)) lastCalls.set(name, { args, isRepeated: false, prepared: undefined })
      else lastCalls.delete(name)
      return false
    }
    if (!last.isRepeated) {
      last.isRepeated = true
      return false
    }
    last.prepared ??= prepare() as { runSync(): void }
    try {
      last.prepared.runSync()
      return true
    } catch (error) {
      lastCalls.delete(name)
      throw error
    }
  }
}

function areSame(a: readonly unknown[], b: readonly unknown[]): boolean {
  if (a.length !== b.length) return false
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false
  return true
}
