/// <reference path="./webassembly.d.ts" />
import { kernelBytes } from '#kernels'
import type { DType } from '../dtype.ts'
import { reductionCodes, type Reduction } from '../reduction.ts'

/**
 * Arithmetic on buffers of a rank's arena, in SIMD. All addresses are byte offsets into its memory;
 * they need no alignment.
 */
export interface Kernels {
  /**
   * out[i] = a[i] op b[i]; `out` may be `a` or `b`. See `ReduceOp` for what each does. `avg` and
   * `premulSum` are sums here: multiply with `scale`, at the end or before.
   */
  combine(op: Reduction, dtype: DType, out: number, a: number, b: number, count: number): void

  /** x[i] *= factor in place, for floats; in float32 for 16-bit ones, rounded once. */
  scale(dtype: DType, at: number, count: number, factor: number): void

  /** out[i] = a[i] * factor, which is float32, as a 16-bit float: to the nearest, ties to even. */
  narrow(dtype: HalfDType, out: number, a: number, count: number, factor: number): void

  /** out[i] = a[i], a 16-bit float, as float32. */
  widen(dtype: HalfDType, out: number, a: number, count: number): void

  /**
   * Copies bytes; the ranges may overlap. Prefer it to `copyWithin` and `set` on shared memory:
   * those are twice as slow, and ten times where the two addresses differ modulo 8.
   */
  copy(to: number, from: number, bytes: number): void

  /**
   * Spins until a word that counts modulo 2^32 has reached `count`, `looks` rounds at most; returns whether
   * it has. `word` is its offset.
   */
  awaitCount(word: number, count: number, looks: number): boolean

  /**
   * Spins on words that other threads write until one has changed since the last call, `rounds` times at
   * most; returns whether one has. `table` is the offset of two words for each: its offset, and the value
   * seen last.
   */
  awaitChange(table: number, count: number, rounds: number): boolean
}

export type HalfDType = 'float16' | 'bfloat16'

type Combine = (op: number, out: number, a: number, b: number, count: number) => void
/** `widen` takes no factor. */
type Convert = (out: number, a: number, count: number, factor?: number) => void
type Scale = (at: number, count: number, factor: number) => void
/** Floats have `scale`. */
type Exports = Readonly<
  Record<`${DType}_combine`, Combine> &
    Record<`${DType}_scale`, Scale> &
    Record<`${HalfDType}_${'narrow' | 'widen'}`, Convert> & {
      copy: Kernels['copy']
      awaitCount: (word: number, count: number, looks: number) => number
      awaitChange: (table: number, count: number, rounds: number) => number
    }
>

let compiled: WebAssembly.Module | undefined

/** Binds the kernels to `memory`, which must be shared. Compiles them at the first call. */
export function instantiateKernels(memory: WebAssembly.Memory): Kernels {
  compiled ??= new WebAssembly.Module(kernelBytes())
  const kernels = new WebAssembly.Instance(compiled, { env: { memory } })
    .exports as unknown as Exports
  return {
    combine: (op, dtype, out, a, b, count) => {
      kernels[`${dtype}_combine`](reductionCodes[op], out, a, b, count)
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
    copy: (to, from, bytes) => {
      kernels.copy(to, from, bytes)
    },
    awaitCount: (word, count, looks) => kernels.awaitCount(word, count, looks) !== 0,
    awaitChange: (table, count, rounds) => kernels.awaitChange(table, count, rounds) !== 0,
  }
}
