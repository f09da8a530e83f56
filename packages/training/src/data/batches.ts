import { argumentError, count, declareOptions, flag, shown, type Rules } from '@tsrun/core'
import { createTensor, tensorFrom } from '../backend/host-memory.ts'
import { newArray, type HostArray } from '../tfjs/host-arrays.ts'
import type { Tensor } from '../tfjs/tfjs.ts'
import type { Examples } from './examples.ts'
import { endsOfShare, epochOrder, orderRules, shareRule, type Share } from './order.ts'

/** Options of `batches`. */
export interface BatchesOptions {
  /** The number of examples in a batch, over all ranks. */
  readonly batch: number
  /** The seed of the order of examples; default 0. The order also depends on `epoch`. */
  readonly seed?: number
  /** The number of the epoch; default 0. Each epoch has its own order. */
  readonly epoch?: number
  /** Whether to shuffle the examples; default true. */
  readonly shuffle?: boolean
  /** Whether to drop a last batch that is smaller; default false. */
  readonly dropLast?: boolean
  /**
   * This rank's part of every batch, as [index, count]: `run.share` of a trainer, or the data
   * parallel coordinate. Ranks that pass the same coordinate get the same examples. The parts of
   * the last batch may differ by one example or be empty. Default [0, 1].
   */
  readonly share?: Share
  /** The number of examples of the epoch that all ranks together have already consumed; default 0. */
  readonly start?: number
}

const batchRules = {
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
  /** The index of the batch's first example within the batch of all ranks, if known. */
  readonly row?: number
  /** This rank's part of the batch of all ranks, if known. */
  readonly share?: Share
  /** The indices of the examples in the data set. */
  readonly indices: Int32Array
  /** Creates a tensor of the field `inputs` [size, ...], which the caller disposes. */
  readonly inputs: () => Tensor
  /** Creates a tensor of the field `labels` [size, ...], which the caller disposes. */
  readonly labels: () => Tensor
  /**
   * Creates a tensor of a field, which the caller disposes.
   *
   * @throws ERR_TSR_ARGUMENT when the examples have no such field
   */
  readonly tensor: (field: string) => Tensor
}

/** The batches of one epoch, in order. */
export interface Batches extends Iterable<ExampleBatch> {
  /** The number of batches. */
  readonly length: number
}

/**
 * Splits one epoch of `dataset` into batches.
 *
 * The order depends only on `seed` and `epoch`, so all ranks compute the same order without
 * communication.
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option or one that is out of range
 *
 * @example
 * const train = mnist({ split: 'train' })
 * for (const batch of batches(train, { batch: 128, epoch, share: run.share })) await
 * run.step(batch)
 */
export function batches(dataset: Examples, options: BatchesOptions): Batches {
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

/**
 * The position of training in the data, to save in a checkpoint. The position is the same on all ranks
 * and does not depend on their number.
 */
export interface LoaderState {
  readonly epoch: number
  /** The number of examples of this epoch that all ranks together have consumed. */
  readonly consumed: number
  readonly seed: number
  readonly shuffle: boolean
  /** The number of examples of the data set. */
  readonly examples: number
}

/** Options of `dataLoader`. */
export type LoaderOptions = Omit<BatchesOptions, 'epoch' | 'start'>

const readLoaderOptions = declareOptions(batchRules satisfies Rules<LoaderOptions>)

/** Yields the batches of one epoch; each loop runs the next epoch. */
export interface Loader extends Iterable<ExampleBatch> {
  /** The current or next epoch. It increases at the end of an epoch. */
  readonly epoch: number
  /** The number of batches in a whole epoch. */
  readonly length: number
  /** The number of batches that are left in this epoch. */
  readonly remaining: number
  /** Returns a copy of the position after the last returned batch. */
  state(): LoaderState
  /**
   * Continues from a saved position, even with another batch size or number of ranks. No example of the
   * epoch is lost or repeated. `state` replaces the options `seed` and `shuffle`.
   *
   * @throws ERR_TSR_ARGUMENT when `state` is invalid or belongs to another data set
   */
  loadState(state: LoaderState): void
}

/**
 * Creates a source of batches that keeps its position. A `for` loop continues where the previous loop or
 * job stopped, and runs to the end of the epoch. The next loop runs the next epoch. Pass `run.share` of a
 * trainer as `share`, or the data parallel coordinate of the rank. Ranks that work on the same examples
 * (tensor parallel ranks, pipeline stages) have the same coordinate, so they get the same batches without
 * communication.
 *
 * @throws ERR_TSR_ARGUMENT; also from a loop that continues after another loop over the same loader was
 *   started
 *
 * @example
 * const loader = dataLoader(train, { batch: 128, share: run.share })
 * if (checkpoint !== undefined) loader.loadState(checkpoint.data)
 * while (loader.epoch < epochs) {
 *   for (const batch of loader) await run.step(batch)
 * }
 */
export function dataLoader(dataset: Examples, options: LoaderOptions): Loader {
  const complete = readLoaderOptions(options)
  const { size: examples } = dataset
  let order = { seed: complete.seed, shuffle: complete.shuffle }
  let epoch = 0
  let consumed = 0
  let loops = 0
  const rest = () => batches(dataset, { ...complete, ...order, epoch, start: consumed })
  return {
    get epoch() {
      return epoch
    },
    length: batches(dataset, complete).length,
    get remaining() {
      return rest().length
    },
    state: () => ({ epoch, consumed, ...order, examples }),
    loadState(state) {
      checkState(state)
      if (state.examples !== examples) {
        throw argumentError(
          'state',
          `one for a data set of ${state.examples} examples`,
          `${examples} examples, as there are now; with other data, start a new epoch: run.load(directory), then fit without resume`,
        )
      }
      count().check('epoch', state.epoch)
      count({ to: examples }).check('consumed', state.consumed)
      order = { seed: state.seed, shuffle: state.shuffle }
      epoch = state.epoch
      consumed = state.consumed
    },
    *[Symbol.iterator]() {
      const own = ++loops
      // Two simultaneous loops would repeat batches and count epochs twice.
      const checkAlone = () => {
        if (own === loops) return
        throw argumentError(
          'the loop over a loader',
          'continued after another loop over it was started',
          'one loop at a time, or a loader for each loop',
        )
      }
      for (const batch of rest()) {
        checkAlone()
        consumed = Math.min(examples, consumed + complete.batch)
        yield batch
      }
      checkAlone()
      epoch++
      consumed = 0
    },
  }
}

function checkState(state: Partial<LoaderState> | null) {
  if (typeof state?.seed === 'number' && typeof state.shuffle === 'boolean') return
  throw argumentError('state', shown(state), 'the result of state() of a loader')
}

/** Makes a batch of the examples `indices`. */
export function exampleBatch({ fields }: Examples, indices: Int32Array): ExampleBatch {
  const size = indices.length
  const tensor = (name: string) => {
    const field = fields[name]
    if (field === undefined) {
      throw argumentError(
        'the set of fields of the examples',
        `{ ${Object.keys(fields).join(', ')} }`,
        `one with ${name}`,
      )
    }
    const shape = [size, ...field.shape]
    const read = (values: HostArray) => {
      field.read(indices, values)
    }
    if (field.inPlace === true) return createTensor(shape, read, field.dtype)
    const values = newArray(shape, field.dtype)
    read(values)
    return tensorFrom(values as Float32Array, shape, field.dtype as 'float32')
  }
  return { size, indices, tensor, inputs: () => tensor('inputs'), labels: () => tensor('labels') }
}
