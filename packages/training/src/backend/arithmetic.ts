import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { currentBackend } from './current.ts'
import { currentHeap, type WasmHeap } from './wasm/heap.ts'

// Gradient sums and optimizer updates, each by the fastest method of the backend. Arrays are updated in
// double precision and rounded once when stored. Tensors are updated without fetching them.

/** out = x + factor y, by a wasm kernel or by a loop with the same bits. `out` may be `x` or `y`. */
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

/** The arrays of an optimizer step. They may be views of tensor memory, which an allocation detaches. */
export interface UpdateArrays {
  /** Receives the next values of the parameter. May be the same array as `gradient`. */
  readonly next: Float32Array
  readonly value: Float32Array
  readonly gradient: Float32Array
  /** The state vectors before the step. */
  readonly former: readonly Float32Array[]
  /** Receives the next values of the state vectors. May be the same arrays as `former`. */
  readonly state: readonly Float32Array[]
}

interface AdamStep {
  /** Learning rate / (1 - beta1^steps) */
  readonly rate: number
  /** 1 / sqrt(1 - beta2^steps) */
  readonly scale: number
  readonly epsilon: number
  readonly betas: readonly [number, number]
  /** The factor for the old value of the parameter: 1 without weight decay, else less. */
  readonly keep: number
}

/** Runs one step of `Adam` or `AdamW`. The state is the decaying means of gradients and of their squares. */
export function adamStep(arrays: UpdateArrays, factors: AdamStep): void {
  const { next, value, gradient, former, state } = arrays
  const { rate, scale, epsilon, betas, keep } = factors
  const [beta1, beta2] = betas
  const all = [next, value, gradient, ...former, ...state]
  const heap = commonHeap(...all)
  if (heap !== undefined) {
    const addresses = all.map((array) => array.byteOffset)
    // The kernel takes the arrays in this order: next, value, gradient, both former means, both new means.
    heap.kernels.adam(...addresses, next.length, rate, scale, epsilon, beta1, beta2, keep)
    return
  }
  const [formerMean, formerSquare] = former
  const [mean, square] = state
  for (let i = 0; i < next.length; i++) {
    const g = gradient[i]!
    const m = beta1 * formerMean![i]! + (1 - beta1) * g
    const v = beta2 * formerSquare![i]! + (1 - beta2) * g * g
    mean![i] = m
    square![i] = v
    next[i] = value[i]! * keep - (rate * m) / (Math.sqrt(v) * scale + epsilon)
  }
}

function commonHeap(...arrays: readonly Float32Array[]): WasmHeap | undefined {
  const heap = currentHeap()
  const buffer = heap?.backend.wasm.HEAPU8.buffer
  return arrays.every((array) => array.buffer === buffer) ? heap : undefined
}

/** Returns x + y for equal shapes. The result outlives any tf.tidy; the caller disposes it. */
export function sumOf(x: Tensor, y: Tensor): Tensor {
  return currentBackend().sumOf?.(x, y) ?? tf.keep(tf.add(x, y))
}

/** Adds `addend` to `sum` in place. If the memory of `sum` is inaccessible or shared, returns false. */
export function addInPlace(sum: Tensor, addend: Tensor): boolean {
  const heap = currentHeap()
  if (heap === undefined || !heap.isWritable(sum) || sum.size !== addend.size) return false
  const at = heap.addressOf(sum)
  heap.kernels.add_scaled(at, at, 1, heap.addressOf(addend), sum.size)
  return true
}
