import type { Arena } from '../../arena/arena.ts'
import type { CallOptions } from '../../call-options.ts'
import type { AnyTypedArray, DType } from '../../dtype.ts'
import type { OperationName } from '../../operation.ts'
import type { PersistentOperation } from '../../persistent-operation.ts'
import type { CheckedReduction } from './arguments.ts'
import type { FollowedWork } from './pending-work.ts'

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
  /** An object that must not be garbage-collected before the operation ends. */
  readonly held?: unknown
}

export interface Starter {
  readonly arena: Arena
  /** Whether the other ranks of the world do not exist. */
  readonly isFake?: boolean
  start<T>(call: Call<T>): FollowedWork<T>
  /** Checks a call and places its buffers once, for many runs. */
  prepare(call: Call<unknown>): PersistentOperation
}

/** A starter that can also start operations on which the caller blocks. */
export interface AwaitedStarter extends Starter {
  /** Calls `start`, which starts an operation. The caller must block on that operation next. */
  startAwaited<T>(start: () => T): T
}
