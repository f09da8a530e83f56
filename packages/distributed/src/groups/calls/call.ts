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
  /** The buffers of a coalesced operation, in order. Each is both input and output. */
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
 * How `start` handles a call. `started`: it starts the call. `awaited`: it starts the call, and the
 * caller blocks on it next. `prepared`: it prepares one call, and returns a `PreparedOperation`
 * instead of a work. Only the caller of `inMode` may use that object.
 */
export type StartMode = 'started' | 'awaited' | 'prepared'

export interface Starter {
  /** Detects repeated blocking calls. Undefined within a composite call, whose positions are reserved. */
  readonly repeated?: ReturnType<typeof createRepeatedCalls>
  /** Whether this is a fake world, which has no other ranks. */
  readonly isFake?: boolean
  /** @returns the work, or in the mode `prepared` a `PreparedOperation` instead */
  start<T>(call: Call<T>): StartedWork<T>
  /** Calls `run`, with `start` in the given mode. */
  inMode<T>(mode: StartMode, run: () => T): T
}
