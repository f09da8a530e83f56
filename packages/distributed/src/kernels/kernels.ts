/// <reference path="./webassembly.d.ts" />
import { readFileSync } from 'node:fs'
import { tsrError } from '@tsrun/core'
import type { DType } from '../dtype.ts'
import type { ReduceOp } from '../process-group.ts'

/**
 * Arithmetic on buffers of a rank's arena, in SIMD. All addresses are byte offsets into its memory;
 * they need no alignment.
 */
export interface Kernels {
  /**
   * out[i] = a[i] op b[i]; `out` may be `a` or `b`. `avg` is a sum: divide at the end with `scale`.
   *
   * Floating-point `min` and `max` give NaN when either element is NaN and order -0 below +0, as
   * torch does; int32 `sum` and `product` wrap around.
   */
  combine(op: ReduceOp, dtype: DType, out: number, a: number, b: number, count: number): void

  /**
   * x[i] *= factor, in place. float32 multiplies by the factor rounded to float32; int32 cuts the
   * result toward zero, exactly so for a factor 1/n, like torch's division of integers for `avg`.
   */
  scale(dtype: DType, at: number, count: number, factor: number): void

  /**
   * Copies bytes; the ranges may overlap. Prefer it to `copyWithin` and `set` on shared memory:
   * those are twice as slow, and ten times where the two addresses differ modulo 8.
   */
  copy(to: number, from: number, bytes: number): void
}

type Combine = (out: number, a: number, b: number, count: number) => void
type Scale = (at: number, count: number, factor: number) => void
type KernelOp = Exclude<ReduceOp, 'avg'>
type Exports = Readonly<
  Record<`${DType}_${KernelOp}`, Combine> &
    Record<`${DType}_scale`, Scale> & { copy: Kernels['copy'] }
>

/** Where the build puts the kernels, as seen from both src/kernels and dist/kernels. */
const file = new URL('../../dist/kernels.wasm', import.meta.url)

let compiled: WebAssembly.Module | undefined

/** Binds the kernels to `memory`, which must be shared. Compiles them at the first call. */
export function instantiateKernels(memory: WebAssembly.Memory): Kernels {
  compiled ??= new WebAssembly.Module(readKernels())
  const kernels = new WebAssembly.Instance(compiled, { env: { memory } })
    .exports as unknown as Exports
  return {
    combine: (op, dtype, out, a, b, count) => {
      kernels[`${dtype}_${op === 'avg' ? 'sum' : op}`](out, a, b, count)
    },
    scale: (dtype, at, count, factor) => {
      kernels[`${dtype}_scale`](at, count, factor)
    },
    copy: (to, from, bytes) => {
      kernels.copy(to, from, bytes)
    },
  }
}

function readKernels(): Uint8Array<ArrayBuffer> {
  try {
    return readFileSync(file)
  } catch (cause) {
    throw tsrError('ERR_TSR_INTERNAL', { what: `${file.pathname} is missing` }, { cause })
  }
}
