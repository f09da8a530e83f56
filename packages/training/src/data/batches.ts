import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { createTensor } from '../backend/host-memory.ts'
import { tf } from '../backend/tensorflow.ts'
import type { Dataset } from './dataset.ts'
import { permutation } from './permutation.ts'

export interface BatchesOptions {
  /** Examples a batch. */
  readonly batch: number
  /** With `epoch` it alone decides the order; default 0. */
  readonly seed?: number
  /** Each epoch has an order of its own; default 0. */
  readonly epoch?: number
  /** Default true; false keeps the order of the data set. */
  readonly shuffle?: boolean
  /** Leaves out a last batch that is not full; default false. */
  readonly dropLast?: boolean
  /**
   * Number `index` of `count` equal parts of every batch: for ranks that share the batches, by their
   * data parallel coordinate. The parts of a last batch may differ by one example, or be empty.
   * Default [0, 1].
   */
  readonly share?: readonly [index: number, count: number]
}

/** Some examples. Ranks that need one half of it never read the other. */
export interface ExampleBatch {
  readonly size: number
  /** Indices of the examples in the data set. */
  readonly indices: Int32Array
  /** Makes [size, features] float32, the caller's to dispose. */
  readonly inputs: () => Tensor
  /** Makes [size] int32, the caller's to dispose. */
  readonly labels: () => Tensor
}

/** The batches of one epoch, in order. */
export interface Batches extends Iterable<ExampleBatch> {
  /** Number of batches. */
  readonly length: number
}

/**
 * Cuts one epoch of `dataset` into batches.
 *
 * Their order depends on `seed` and `epoch` alone: every rank computes the same one without a word
 * to the others.
 *
 * @throws ERR_TSR_ARGUMENT when `batch` is not a positive integer
 *
 * @example
 * for (const { inputs, labels } of batches(mnist({ split: 'train' }), { batch: 128, epoch })) ...
 */
export function batches(dataset: Dataset, options: BatchesOptions): Batches {
  const { batch, seed = 0, epoch = 0, shuffle = true, dropLast = false } = options
  if (!(Number.isSafeInteger(batch) && batch > 0)) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'batch',
      value: batch,
      expected: 'a positive integer',
    })
  }
  const [index, count] = options.share ?? [0, 1]
  if (!(
    Number.isSafeInteger(index) &&
    Number.isSafeInteger(count) &&
    index >= 0 &&
    index < count
  )) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'share',
      value: `[${String(index)}, ${String(count)}]`,
      expected: 'an index below the count',
    })
  }
  const { size } = dataset
  const length = dropLast ? Math.floor(size / batch) : Math.ceil(size / batch)
  return {
    length,
    *[Symbol.iterator]() {
      const order = shuffle
        ? permutation(size, `epoch ${String(epoch)}`, seed)
        : Int32Array.from({ length: size }, (_, i) => i)
      for (let i = 0; i < length; i++) {
        const whole = order.subarray(i * batch, (i + 1) * batch)
        const [from, to] = [index, index + 1].map((k) => Math.floor((k * whole.length) / count))
        yield exampleBatch(dataset, whole.subarray(from, to))
      }
    },
  }
}

function exampleBatch(dataset: Dataset, indices: Int32Array): ExampleBatch {
  const size = indices.length
  return {
    size,
    indices,
    inputs: () =>
      createTensor([size, dataset.features], (out) => {
        dataset.readInputs(indices, out)
      }),
    labels: () => {
      const labels = new Int32Array(size)
      dataset.readLabels(indices, labels)
      return tf.keep(tf.tensor1d(labels, 'int32'))
    },
  }
}
