import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../tfjs/tfjs.ts'
import { currentEager } from './tensorflow/eager.ts'
import { currentHeap, type WasmHeap } from './wasm/heap.ts'

// Gradient sums and optimizer updates, each by the fastest method of the backend. Arrays are updated in
// double precision and rounded once when stored. Tensors are updated without fetching them.

/** float32 values outside of tensors, for example optimizer state. */
export interface HostVector {
  /** Read this property again at each use: on wasm, an allocation detaches earlier arrays. */
  readonly values: Float32Array
}

interface Block {
  readonly heap: WasmHeap
  readonly address: number
}

const blocks = new FinalizationRegistry<Block>(({ heap, address }) => {
  heap.free(address)
})

/** Allocates zeros. On wasm, they lie in the memory of the backend, so that its kernels can access them. */
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
 * out = x + factor y. Uses a wasm kernel if all arrays are in the memory of the wasm backend.
 * Otherwise, a loop computes the same bits.
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
  /** Decaying mean of the gradients; updated in place. */
  readonly mean: Float32Array
  /** Decaying mean of the squared gradients; updated in place. */
  readonly square: Float32Array
}

export interface AdamStep {
  /** Learning rate / (1 - beta1^steps) */
  readonly rate: number
  /** 1 / sqrt(1 - beta2^steps) */
  readonly scale: number
  readonly epsilon: number
  readonly betas: readonly [number, number]
  /** The factor for the old value of the parameter: 1 without weight decay, else less. */
  readonly keep: number
}

/** Runs one step of `Adam` or `AdamW` on the values of a parameter, with a wasm kernel if possible. */
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

/** Returns x + y for equal shapes. The result outlives any tf.tidy; the caller disposes it. */
export function sumOf(x: Tensor, y: Tensor): Tensor {
  const eager = currentEager()
  if (eager === undefined) return tf.keep(tf.add(x, y))
  return eager.take(eager.add(eager.handleOf(x), eager.handleOf(y)), x.shape)
}

/**
 * Adds `addend` to `sum` in place. Does nothing and returns false if the memory of `sum` is
 * inaccessible or shared with another tensor.
 */
export function addInPlace(sum: Tensor, addend: Tensor): boolean {
  const heap = currentHeap()
  if (heap === undefined || !heap.isWritable(sum) || sum.size !== addend.size) return false
  const at = heap.addressOf(sum)
  heap.kernels.add_scaled(at, at, 1, heap.addressOf(addend), sum.size)
  return true
}
