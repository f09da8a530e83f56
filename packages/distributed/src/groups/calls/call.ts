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
  /** Numbers for the engine, and room for its answer; see `Operation.table`. */
  readonly table?: readonly number[] | undefined
  /** The time-out is multiplied by it. */
  readonly patience?: number
  /** What the call resolves to, by what the engine left in the table. Default: undefined. */
  readonly resultOf?: ((table: Float64Array) => T) | undefined
  /** Called when the operation has succeeded. */
  readonly onDone?: () => void
  /** Called at the end in any case, also when the call is refused. */
  readonly onEnd?: () => void
  readonly options: CallOptions | undefined
  /** Kept from garbage collection until the operation has ended. */
  readonly held?: unknown
}

/** Starts calls. */
export interface Starter {
  readonly arena: Arena
  start<T>(call: Call<T>): FollowedWork<T>
  /** Checks a call and places its buffers, for many starts. */
  prepare(call: Call<unknown>): PersistentOperation
}

/** Starts calls that block, too. */
export interface AwaitedStarter extends Starter {
  /** Calls `start`, whose operation the caller blocks on before it does anything else. */
  startAwaited<T>(start: () => T): T
}
