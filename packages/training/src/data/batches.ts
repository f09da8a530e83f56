import { count, declareOptions, flag, tsrError, type Rules } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { createTensor } from '../backend/host-memory.ts'
import { tf } from '../tfjs/tfjs.ts'
import type { Dataset } from './dataset.ts'
import { fieldTensor, isExamples, type Examples } from './examples.ts'
import { endsOfShare, epochOrder, orderRules, shareRule, type Share } from './order.ts'

export interface BatchesOptions {
  /** The number of examples in a batch, over all ranks. */
  readonly batch: number
  /** The seed of the order, which depends only on it and on `epoch`; default 0. */
  readonly seed?: number
  /** Each epoch has its own order; default 0. */
  readonly epoch?: number
  /** Whether to shuffle the examples; default true. */
  readonly shuffle?: boolean
  /** Whether to drop a last batch that is not full; default false. */
  readonly dropLast?: boolean
  /**
   * Part `index` of `count` equal parts of every batch: `run.share` of a trainer. Ranks that share
   * batches pass their data parallel coordinate. The parts of the last batch may differ by one example
   * or be empty. Default [0, 1].
   */
  readonly share?: Share
  /** The number of examples of the epoch that are already consumed, over all ranks; default 0. */
  readonly start?: number
}

/** Rules for the options that loaders accept too. */
export const batchRules = {
  batch: count({ from: 1 }),
  seed: orderRules.seed,
  shuffle: orderRules.shuffle,
  dropLast: flag.default(false),
  share: shareRule.default([0, 1]),
}

const readOptions = declareOptions({
  ...batchRules,
  epoch: orderRules.epoch,
  start: count().default(0),
} satisfies Rules<BatchesOptions>)

/** A batch of examples. Inputs and labels are read only on the ranks that ask for them. */
export interface ExampleBatch {
  readonly size: number
  /** The index of the first example in the batch of all ranks, if known. */
  readonly row?: number
  /** Which part of that batch it is, if known. */
  readonly share?: Share
  /** The indices of the examples in the data set. */
  readonly indices: Int32Array
  /**
   * Creates a tensor [size, ...], which the caller disposes: for a `Dataset` float32 [size, features],
   * for `examples` the field `inputs`.
   */
  readonly inputs: () => Tensor
  /** The same for labels: for a `Dataset` int32 [size], for `examples` the field `labels`. */
  readonly labels: () => Tensor
  /**
   * The same for any field of `examples`.
   *
   * @throws ERR_TSR_ARGUMENT when there is no such field
   */
  readonly tensor: (field: string) => Tensor
}

/** The batches of one epoch in their order. */
export interface Batches extends Iterable<ExampleBatch> {
  /** The number of batches. */
  readonly length: number
}

/**
 * Splits one epoch of `dataset` into batches.
 *
 * Their order depends only on `seed` and `epoch`, so all ranks compute the same order without any
 * communication.
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option or one that is out of range
 *
 * @example
 * const train = mnist({ split: 'train' })
 * for (const batch of batches(train, { batch: 128, epoch, share: run.share })) await run.step(batch)
 */
export function batches(dataset: Dataset | Examples, options: BatchesOptions): Batches {
  const { batch, seed, epoch, shuffle, dropLast, share, start } = readOptions(options)
  const { size } = dataset
  count({ to: size }).check('start', start)
  const length = (dropLast ? Math.floor : Math.ceil)((size - start) / batch)
  return {
    length,
    *[Symbol.iterator]() {
      const order = epochOrder(size, { seed, epoch, shuffle }).subarray(start)
      for (let i = 0; i < length; i++) {
        const whole = order.subarray(i * batch, (i + 1) * batch)
        const [from, to] = endsOfShare(share, whole.length)
        yield { ...exampleBatch(dataset, whole.subarray(from, to)), row: from, share }
      }
    },
  }
}

export function exampleBatch(dataset: Dataset | Examples, indices: Int32Array): ExampleBatch {
  const size = indices.length
  if (isExamples(dataset)) {
    const tensor = (field: string): Tensor => fieldTensor(dataset, field, indices)
    return { size, indices, tensor, inputs: () => tensor('inputs'), labels: () => tensor('labels') }
  }
  const batch = labeledBatch(dataset, indices)
  const { inputs, labels } = batch
  const fields: Record<string, () => Tensor> = { inputs, labels }
  const tensor = (field: string): Tensor => {
    if (fields[field] !== undefined) return fields[field]()
    const expected = 'inputs or labels'
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'a field of the examples', value: field, expected })
  }
  return { ...batch, tensor }
}

function labeledBatch(dataset: Dataset, indices: Int32Array): Omit<ExampleBatch, 'tensor'> {
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
