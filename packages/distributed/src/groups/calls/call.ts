import type { Arena } from '../../arena/arena.ts'
import type { CallOptions } from '../../call-options.ts'
import type { AnyTypedArray, DType } from '../../dtype.ts'
import type { OperationName } from '../../operation.ts'
import type { CheckedReduction } from './arguments.ts'
import type { StartedWork } from './pending-work.ts'
import type { createRepeatedCalls } from './repeated-calls.ts'

/** A call with checked arguments. */
export interface Call<T = void> {
  readonly name: OperationName
  readonly dtype: DType
  readonly count: number
  readonly input: AnyTypedArray | undefined
  readonly output: AnyTypedArray | undefined
  readonly peer?: number
  readonly tag?: number
  readonly reduction?: CheckedReduction | undefined
  /**
   * A position among the group's collectives that was reserved for this call. Default: the next
   * position.
   */
  readonly sequence?: number
  /**
   * Numbers for the engine, or space for the numbers that the engine returns. `Operation.table` has
   * the layout.
   */
  readonly table?: readonly number[] | undefined
  /** Factor by which to multiply the time-out. */
  readonly patience?: number
  /** Computes the result from the table that the engine filled. Default: undefined. */
  readonly resultOf?: ((table: Float64Array) => T) | undefined
  /** Called when the operation has succeeded. */
  readonly onDone?: () => void
  /** Called when the operation has ended in any way, even if the call is refused. */
  readonly onEnd?: () => void
  readonly options: CallOptions | undefined
}

/**
 * What `start` does with a call. `started` starts it. `awaited` starts it for a caller that blocks on
 * it next. `prepared` prepares one call; `start` then returns a `PreparedOperation` instead of
 * a work, which only the caller of `inMode` may use.
 */
export type StartMode = 'started' | 'awaited' | 'prepared'

export interface Starter {
  readonly arena: Arena
  /** Absent for the calls of which another call consists: their positions are reserved. */
  readonly repeated?: ReturnType<typeof createRepeatedCalls>
  /** Whether the other ranks of the world do not exist. */
  readonly isFake?: boolean
  /** @returns the work, or in the mode `prepared` a `PreparedOperation` instead */
  start<T>(call: Call<T>): StartedWork<T>
  /** Calls `run`. Until it returns, `start` has this mode. */
  inMode<T>(mode: StartMode, run: () => T): T
}
