import type { Arena } from '../../arena/arena.ts'
import type { CallOptions } from '../../call-options.ts'
import type { AnyTypedArray, DType } from '../../dtype.ts'
import type { AlgorithmName, OperationName } from '../../operation.ts'
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
  readonly algorithm?: AlgorithmName
  /** A reserved position among the group's collectives. Default: the next one. */
  readonly sequence?: number
  /** Numbers for the engine, and space for its answer; see `Operation.table`. */
  readonly table?: readonly number[] | undefined
  /** Factor of the time-out. */
  readonly patience?: number
  /** Computes the result from the table that the engine filled. Default: undefined. */
  readonly resultOf?: ((table: Float64Array) => T) | undefined
  /** Called when the operation has succeeded. */
  readonly onDone?: () => void
  /** Called at the end in any case, even if the call is refused. */
  readonly onEnd?: () => void
  readonly options: CallOptions | undefined
  /** Must not be garbage-collected before the operation ends. */
  readonly held?: unknown
}

export interface Starter {
  readonly arena: Arena
  start<T>(call: Call<T>): FollowedWork<T>
  /** Checks a call and places its buffers once, for many runs. */
  prepare(call: Call<unknown>): PersistentOperation
}

/** Also starts calls that block. */
export interface AwaitedStarter extends Starter {
  /** Calls `start`. The caller must block on the started operation next. */
  startAwaited<T>(start: () => T): T
}
