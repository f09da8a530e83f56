import { count, declareOptions, shown, tsrError, type Rules } from '@tsrun/core'
import { batches, batchRules, type BatchesOptions, type ExampleBatch } from './batches.ts'
import type { Dataset } from './dataset.ts'
import type { Examples } from './examples.ts'

/**
 * The position of the training in its data, to be saved in a checkpoint. It is the same on all ranks
 * and independent of their number.
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

export type LoaderOptions = Omit<BatchesOptions, 'epoch' | 'start'>

const readOptions = declareOptions(batchRules satisfies Rules<LoaderOptions>)

/** Yields the batches of one epoch; each loop runs the next epoch. */
export interface Loader extends Iterable<ExampleBatch> {
  /** The current or next epoch. It increases at the end of an epoch. */
  readonly epoch: number
  /** The number of batches in a whole epoch. */
  readonly length: number
  /** The number of batches that are left in this epoch. */
  readonly remaining: number
  /** A copy of the position after the last returned batch. */
  state(): LoaderState
  /**
   * Continues from a position, even with another batch size or number of ranks: no example of the epoch
   * is lost or repeated. The seed and the shuffling of the state replace those of the options.
   *
   * @throws ERR_TSR_ARGUMENT when it is not a state, or belongs to another data set
   */
  loadState(state: LoaderState): void
}

/**
 * Creates a source of batches that keeps its position. A `for` loop runs to the end of the epoch, from
 * where the previous loop or job stopped; the next loop runs the next epoch.
 *
 * Pass `run.share` of a trainer as `share`, or the data parallel coordinate of the rank. Ranks that work
 * on the same examples (tensor parallel ranks, pipeline stages) have the same coordinate and so get the
 * same batches without any communication.
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
export function dataLoader(dataset: Dataset | Examples, options: LoaderOptions): Loader {
  const complete = readOptions(options)
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
        throw tsrError('ERR_TSR_ARGUMENT', {
          name: 'state',
          value: `one for a data set of ${String(state.examples)} examples`,
          expected: `${String(examples)} examples, as there are now; with other data, start a new epoch: run.load(directory), then fit without resume`,
        })
      }
      count().check('epoch', state.epoch)
      count({ to: examples }).check('consumed', state.consumed)
      order = { seed: state.seed, shuffle: state.shuffle }
      epoch = state.epoch
      consumed = state.consumed
    },
    *[Symbol.iterator]() {
      const own = ++loops
      for (const batch of rest()) {
        if (own !== loops) throw overlappingLoops()
        consumed = Math.min(examples, consumed + complete.batch)
        yield batch
      }
      if (own !== loops) throw overlappingLoops()
      epoch++
      consumed = 0
    },
  }
}

/** Two loops at a time would repeat batches and count epochs twice. */
function overlappingLoops(): Error {
  const value = 'continued after another loop over it was started'
  const expected = 'one loop at a time, or a loader for each loop'
  return tsrError('ERR_TSR_ARGUMENT', { name: 'the loop over a loader', value, expected })
}

function checkState(state: Partial<LoaderState> | null): void {
  if (typeof state?.seed === 'number' && typeof state.shuffle === 'boolean') return
  const expected = 'the result of state() of a loader'
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'state', value: shown(state), expected })
}
