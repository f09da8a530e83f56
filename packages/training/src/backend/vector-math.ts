import { currentHeap, type WasmHeap } from './wasm/heap.ts'

// Arithmetic on whole arrays, in double precision and rounded once when stored: by kernels where
// all arrays are in the memory of the wasm backend, by plain loops elsewhere, with the same bits.

/** out = x + factor y; `out` may be `x` or `y`. */
export function addScaled(
  out: Float32Array,
  x: Float32Array,
  factor: number,
  y: Float32Array,
): void {
  const heap = commonHeap(out, x, y)
  if (heap !== undefined) {
    heap.kernels.add_scaled(out.byteOffset, x.byteOffset, factor, y.byteOffset, out.length)
    return
  }
  for (let i = 0; i < out.length; i++) out[i] = x[i]! + factor * y[i]!
}

export interface AdamArrays {
  readonly next: Float32Array
  readonly value: Float32Array
  readonly gradient: Float32Array
  /** Decaying mean of the gradients; updated. */
  readonly mean: Float32Array
  /** Decaying mean of their squares; updated. */
  readonly square: Float32Array
}

export interface AdamFactors {
  /** Learning rate / (1 - beta1^steps) */
  readonly rate: number
  /** 1 / sqrt(1 - beta2^steps) */
  readonly scale: number
  readonly epsilon: number
  readonly betas: readonly [number, number]
  /** What the value is multiplied by before the step: 1, or less where weights decay. */
  readonly keep: number
}

/** One step of Adam over the values of a parameter; see `Adam` and `AdamW` for the formulas. */
export function adamStep(arrays: AdamArrays, factors: AdamFactors): void {
  const { next, value, gradient, mean, square } = arrays
  const { rate, scale, epsilon, betas, keep } = factors
  const [beta1, beta2] = betas
  const heap = commonHeap(next, value, gradient, mean, square)
  if (heap !== undefined) {
    const [out, p, g, m, v] = [next, value, gradient, mean, square].map((array) => array.byteOffset)
    heap.kernels.adam(out!, p!, g!, m!, v!, next.length, rate, scale, epsilon, beta1, beta2, keep)
    return
  }
  for (let i = 0; i < next.length; i++) {
    const g = gradient[i]!
    const m = beta1 * mean[i]! + (1 - beta1) * g
    const v = beta2 * square[i]! + (1 - beta2) * g * g
    mean[i] = m
    square[i] = v
    next[i] = value[i]! * keep - (rate * m) / (Math.sqrt(v) * scale + epsilon)
  }
}

function commonHeap(...arrays: readonly Float32Array[]): WasmHeap | undefined {
  const heap = currentHeap()
  const buffer = heap?.backend.wasm.HEAPU8.buffer
  return arrays.every((array) => array.buffer === buffer) ? heap : undefined
}
