/// <reference path="./webassembly.d.ts" />
import { kernelBytes } from '#kernels'
import { dtypeNames, type DType } from '../dtype.ts'
import { reductionCodes, type ReduceOp } from '../reduction.ts'

/**
 * SIMD arithmetic on buffers of a rank's arena. All addresses are byte offsets into its memory, of
 * any alignment.
 */
export interface Kernels {
  /**
   * Computes out[i] = a[i] op b[i]; `out` may be `a` or `b`. `ReduceOp` defines the reductions.
   * `avg` is computed as a sum, which the caller scales.
   */
  combine(op: ReduceOp, dtype: DType, out: number, a: number, b: number, count: number): void

  /**
   * Computes x[i] *= factor in place, for floats. 16-bit floats are multiplied in float32 and
   * rounded once.
   */
  scale(dtype: DType, at: number, count: number, factor: number): void

  /** Computes out[i] = a[i] * factor in float32, rounded to a 16-bit float: nearest, ties to even. */
  narrow(dtype: HalfDType, out: number, a: number, count: number, factor: number): void

  /** Converts 16-bit floats to float32. */
  widen(dtype: HalfDType, out: number, a: number, count: number): void

  /**
   * Copies bytes; the ranges may overlap. On shared memory, `copyWithin` and `set` are two times
   * slower, and ten times if the addresses differ modulo 8.
   */
  readonly copy: (to: number, from: number, bytes: number) => void

  /**
   * Spins until a counter modulo 2^32, at offset `word`, reaches `count`. Polls at most `looks`
   * times. Returns 1 if the counter has reached it, and otherwise 0.
   */
  readonly awaitCount: (word: number, count: number, looks: number) => number

  /**
   * Spins until one of several words has changed since the last call. Polls each word at most
   * `rounds` times. Returns 1 if a word has changed, and otherwise 0. `table` is the offset of a
   * table with two entries per watched word: its offset, and the value last seen.
   */
  readonly awaitChange: (table: number, count: number, rounds: number) => number
}

/** The kernels of a rank that shares its memory with other processes. */
export interface SharedKernels extends Kernels {
  /** Sets a word to 0. If it was 1, returns 1 to exactly one of the threads that call at once. */
  readonly takeFlag: (word: number) => number

  /**
   * Publishes a buffer in a rank's slots, as `SharedSlots.expose` documents. Offset `line` has the
   * epoch, which is followed by the headers of two epochs. `published` is the offset of a counter.
   */
  readonly publish: (
    line: number,
    published: number,
    epoch: number,
    sequence: number,
    kind: number,
    root: number,
    count: number,
    at: number,
  ) => void

  /**
   * Polls at most `looks` times whether a rank has entered an epoch. Returns 0 if it has not, 1 if
   * its header is equal, and 2 if its header differs.
   */
  readonly awaitHeader: (
    line: number,
    looks: number,
    epoch: number,
    sequence: number,
    kind: number,
    root: number,
    count: number,
  ) => number
}

export type HalfDType = 'float16' | 'bfloat16'

type Combine = (op: number, out: number, a: number, b: number, count: number) => void
/** The signature of `narrow` and `widen`; `widen` ignores the factor. */
type Convert = (out: number, a: number, count: number, factor?: number) => void
type Scale = (at: number, count: number, factor: number) => void
/** The exported functions of the kernels. Only floats have `scale`. */
type Exports = Readonly<
  Record<`${DType}_combine`, Combine> &
    Record<`${DType}_scale`, Scale> &
    Record<`${HalfDType}_${'narrow' | 'widen'}`, Convert> &
    Omit<SharedKernels, 'combine' | 'scale' | 'narrow' | 'widen'>
>

let compiled: WebAssembly.Module | undefined

/** Instantiates the kernels on `memory`, which must be shared. The first call compiles the kernels. */
export function instantiateKernels(memory: WebAssembly.Memory): SharedKernels {
  compiled ??= new WebAssembly.Module(kernelBytes())
  const kernels = new WebAssembly.Instance(compiled, { env: { memory } })
    .exports as unknown as Exports
  // Compose the names once instead of in each call.
  const combines = Object.fromEntries(
    dtypeNames.map((dtype) => [dtype, kernels[`${dtype}_combine`]]),
  ) as Readonly<Record<DType, Combine>>
  const { copy, takeFlag, publish, awaitHeader, awaitCount, awaitChange } = kernels
  return {
    combine: (op, dtype, out, a, b, count) => {
      combines[dtype](reductionCodes[op], out, a, b, count)
    },
    scale: (dtype, at, count, factor) => {
      kernels[`${dtype}_scale`](at, count, factor)
    },
    narrow: (dtype, out, a, count, factor) => {
      kernels[`${dtype}_narrow`](out, a, count, factor)
    },
    widen: (dtype, out, a, count) => {
      kernels[`${dtype}_widen`](out, a, count)
    },
    copy,
    takeFlag,
    publish,
    awaitHeader,
    awaitCount,
    awaitChange,
  }
}
