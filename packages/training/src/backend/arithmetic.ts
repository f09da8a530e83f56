import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../tfjs/tfjs.ts'
import { currentEager } from './tensorflow/eager.ts'
import { currentHeap, type WasmHeap } from './wasm/heap.ts'

// The sums and updates of optimizers, each by the fastest way that the backend has: on arrays in
// double precision, rounded once when a value is stored, or on tensors that are not fetched.

/** float32 values that belong to no tensor, for example the state of an optimizer. */
export interface HostVector {
  /** Read this property again at each use: on wasm, an allocation detaches earlier views. */
  readonly values: Float32Array
}

interface Block {
  readonly heap: WasmHeap
  readonly address: number
}

/** Frees the memory of vectors that were garbage-collected. */
const blocks = new FinalizationRegistry<Block>(({ heap, address }) => {
  heap.free(address)
})

/** Zeros; in the memory of the wasm backend if that is current, so that its kernels can access them. */
export function hostVector(length: number): HostVector {
  const heap = currentHeap()
  if (heap === undefined) return { values: new Float32Array(length) }
  const address = heap.allocate(4 * length)
  heap.floats(address, length).fill(0)
  const vector = {
    get values() {
      return heap.floats(address, length)
    },
  }
  blocks.register(vector, { heap, address })
  return vector
}

/**
 * out = x + factor y. By a kernel if all arrays are in the memory of the wasm backend, else by a loop
 * that gives the same bits.
 *
 * @param out - may be `x` or `y`
 */
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

export interface AdamStep {
  /** Learning rate / (1 - beta1^steps) */
  readonly rate: number
  /** 1 / sqrt(1 - beta2^steps) */
  readonly scale: number
  readonly epsilon: number
  readonly betas: readonly [number, number]
  /** The factor that the value is multiplied by before the step: 1, or less with weight decay. */
  readonly keep: number
}

/** One step of Adam over the values of a parameter, computed as by `addScaled`; see `Adam` and `AdamW`. */
export function adamStep(arrays: AdamArrays, factors: AdamStep): void {
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

/** x + y, of one shape. The result outlives any tf.tidy; the caller disposes it. */
export function sumOf(x: Tensor, y: Tensor): Tensor {
  const eager = currentEager()
  if (eager === undefined) return tf.keep(tf.add(x, y))
  return eager.take(eager.add(eager.handleOf(x), eager.handleOf(y)), x.shape)
}

/**
 * sum += addend, without a new tensor. Nothing is done, and the result is false, unless the memory of
 * `sum` is accessible and no other tensor shares it.
 */
export function addInPlace(sum: Tensor, addend: Tensor): boolean {
  const heap = currentHeap()
  if (heap === undefined || !heap.isWritable(sum) || sum.size !== addend.size) return false
  const at = heap.addressOf(sum)
  heap.kernels.add_scaled(at, at, 1, heap.addressOf(addend), sum.size)
  return true
}
