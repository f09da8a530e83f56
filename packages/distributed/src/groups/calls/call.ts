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
  /** Buffers that are input and output together, one after the other. */
  readonly parts?: readonly AnyTypedArray[]
  readonly peer?: number
  readonly tag?: number
  readonly reduction?: CheckedReduction | undefined
  /** The position reserved among the group's collectives. Default: the next one. */
  readonly sequence?: number
  /** Numbers for the engine, or space for numbers that it returns; see `Operation.table`. */
  readonly table?: readonly number[] | undefined
  /** Factor by which to multiply the time-out. */
  readonly patience?: number
  /** Computes the result from the table that the engine filled. Default: undefined. */
  readonly resultOf?: ((table: Float64Array) => T) | undefined
  readonly options: CallOptions | undefined
}

/**
 * What `start` does with a call. `started` starts it. `awaited` starts it for a caller that blocks on
 * it next. `prepared` prepares one call; `start` then returns a `PreparedOperation` instead of
 * a work, which only the caller of `inMode` may use.
 */
export type StartMode = 'started' | 'awaited' | 'prepared'

export interface Starter {
  /** Repeated blocking calls. Absent for the parts of another call, whose positions are reserved. */
  readonly repeated?: ReturnType<typeof createRepeatedCalls>
  /** Whether the other ranks of the world do not exist. */
  readonly isFake?: boolean
  /** @returns the work, or in the mode `prepared` a `PreparedOperation` instead */
  start<T>(call: Call<T>): StartedWork<T>
  /** Calls `run`. Until it returns, `start` has this mode. */
  inMode<T>(mode: StartMode, run: () => T): T
}
