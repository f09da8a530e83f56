import { refuseUnknown } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { checkFlag } from '../arguments.ts'
import { createTensor } from '../backend/host-memory.ts'
import { tf } from '../tfjs/tfjs.ts'
import type { Dataset } from './dataset.ts'
import { checkCount, checkOrder, epochOrder } from './epoch-order.ts'
import { checkShare, endsOfShare, type Share } from './share.ts'

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
  readonly share?: Share
  /** How many examples of the epoch are behind already, over all ranks; default 0. */
  readonly start?: number
}

const KNOWN = Object.keys({
  batch: true,
  seed: true,
  epoch: true,
  shuffle: true,
  dropLast: true,
  share: true,
  start: true,
} satisfies Record<keyof BatchesOptions, true>)

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
 * @throws ERR_TSR_ARGUMENT when an option is out of range, or none that there is
 *
 * @example
 * for (const { inputs, labels } of batches(mnist({ split: 'train' }), { batch: 128, epoch })) ...
 */
export function batches(dataset: Dataset, options: BatchesOptions): Batches {
  refuseUnknown(options, KNOWN)
  const { batch, seed = 0, epoch = 0, shuffle = true, dropLast = false, start = 0 } = options
  const { size } = dataset
  checkCount('batch', batch, 1)
  checkCount('start', start, 0, size)
  checkOrder({ seed, epoch, shuffle })
  checkFlag('dropLast', dropLast)
  const share = options.share ?? [0, 1]
  checkShare('share', share)
  const length = (dropLast ? Math.floor : Math.ceil)((size - start) / batch)
  return {
    length,
    *[Symbol.iterator]() {
      const order = epochOrder(size, { seed, epoch, shuffle }).subarray(start)
      for (let i = 0; i < length; i++) {
        const whole = order.subarray(i * batch, (i + 1) * batch)
        yield exampleBatch(dataset, whole.subarray(...endsOfShare(share, whole.length)))
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
