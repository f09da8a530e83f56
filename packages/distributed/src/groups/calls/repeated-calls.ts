import type { Arena } from '../../arena/arena.ts'
import { dtypesOf } from '../../dtype.ts'

/** The blocking calls that are prepared when they are repeated. They have at most four arguments. */
export const repeatedNames = [
  'broadcast',
  'reduce',
  'allReduce',
  'reduceScatter',
  'allGather',
  'gather',
  'scatter',
  'allToAll',
  'barrier',
] as const

/** The arguments of a call, padded with undefined. */
export type Arguments = readonly [unknown, unknown, unknown, unknown]

/** The last blocking call of a collective. */
interface Last {
  readonly args: Arguments
  /** Whether the same call was made twice in a row. */
  isRepeated: boolean
  /** The prepared call; undefined before the third call in a row with these arguments. */
  prepared: { runSync(): void } | undefined
}

/**
 * Prepares the blocking collectives of a group at the third call in a row with the same arguments.
 * Later calls skip the checks and the placing of buffers. A `kind` is an index of `repeatedNames`.
 */
export function createRepeatedCalls(arena: Arena) {
  const lastCalls: (Last | undefined)[] = repeatedNames.map(() => undefined)

  /**
   * Whether checking the arguments again gives the same result. Views of the arena keep their place
   * and length. A view that fits several dtypes has the dtype of its block until the block is freed.
   */
  const areFixed = (args: Arguments): boolean =>
    args.every((arg) => {
      if (!ArrayBuffer.isView(arg))
        return arg === null || arg === undefined || typeof arg === 'number'
      return arena.contains(arg) && dtypesOf(arg).length === 1
    })

  return {
    /** Runs the prepared call with these arguments. Returns false if there is none. */
    run(kind: number, a: unknown, b: unknown, c: unknown, d: unknown): boolean {
      const last = lastCalls[kind]
      if (last?.prepared === undefined) return false
      const { args } = last
      if (args[0] !== a || args[1] !== b || args[2] !== c || args[3] !== d) return false
      try {
        last.prepared.runSync()
        return true
      } catch (error) {
        lastCalls[kind] = undefined
        throw error
      }
    },
    /** Records a call. If it is the third in a row with these arguments, prepares it and returns true. */
    note(kind: number, args: Arguments, prepare: () => unknown): boolean {
      const last = lastCalls[kind]
      if (last === undefined || args.some((arg, i) => arg !== last.args[i])) {
        // Other arguments are not kept, because they may hold much memory.
        const isKept = areFixed(args)
        lastCalls[kind] = isKept ? { args, isRepeated: false, prepared: undefined } : undefined
        return false
      }
      if (last.isRepeated) last.prepared = prepare() as { runSync(): void }
      last.isRepeated = true
      return last.prepared !== undefined
    },
  }
}
