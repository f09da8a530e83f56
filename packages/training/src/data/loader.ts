import { refuseUnknown, tsrError } from '@tsrun/core'
import { batches, type BatchesOptions, type ExampleBatch } from './batches.ts'
import type { Dataset } from './dataset.ts'
import { checkCount } from './epoch-order.ts'

/** Where training is in its data: the same on all ranks, whatever their number. For a checkpoint. */
export interface LoaderState {
  readonly epoch: number
  /** Examples of this epoch that all ranks together have got. */
  readonly consumed: number
  readonly seed: number
  readonly shuffle: boolean
  /** Of the data set. */
  readonly examples: number
}

export type LoaderOptions = Omit<BatchesOptions, 'epoch' | 'start'>

const KNOWN = Object.keys({
  batch: true,
  seed: true,
  shuffle: true,
  dropLast: true,
  share: true,
} satisfies Record<keyof LoaderOptions, true>)

/** The batches of one epoch after the other. */
export interface Loader extends Iterable<ExampleBatch> {
  /** Which epoch comes next, or is under way; it grows when one comes to its end. */
  readonly epoch: number
  /** Number of batches that are left of it. */
  readonly remaining: number
  /** A copy of the position. A batch that has been handed out is behind it. */
  state(): LoaderState
  /**
   * Goes on from a position, also with another batch size or among other ranks: no example of the
   * epoch is lost or repeated. The order of the state counts, not that of the options.
   *
   * @throws ERR_TSR_ARGUMENT when the state is none, or of another data set
   */
  loadState(state: LoaderState): void
}

/**
 * Batches that remember where they are. A `for` loop runs to the end of the epoch, from wherever the
 * former one, or the job before, has stopped; the next loop runs the next epoch.
 *
 * Give ranks that share batches their data parallel coordinate as `share`. Those that work on the same
 * examples (tensor parallel ranks, stages) have the same one, and so the same batches, without a word.
 *
 * @throws ERR_TSR_ARGUMENT; also from a loop that goes on when another one over the same loader has begun
 *
 * @example
 * const loader = dataLoader(train, { batch: 128, share: [mesh.dp.rank, mesh.dp.size] })
 * if (checkpoint !== undefined) loader.loadState(checkpoint.data)
 * while (loader.epoch < epochs) {
 *   for (const { inputs, labels } of loader) ...
 * }
 */
export function dataLoader(dataset: Dataset, options: LoaderOptions): Loader {
  refuseUnknown(options, KNOWN)
  const { size: examples } = dataset
  let order = { seed: options.seed ?? 0, shuffle: options.shuffle ?? true }
  let epoch = 0
  let consumed = 0
  let loops = 0
  const rest = () => batches(dataset, { ...options, ...order, epoch, start: consumed })
  // what is wrong with the options is said now
  rest()
  return {
    get epoch() {
      return epoch
    },
    get remaining() {
      return rest().length
    },
    state: () => ({ epoch, consumed, ...order, examples }),
    loadState(state) {
      checkState(state)
      if (state.examples !== examples) {
        throw tsrError('ERR_TSR_ARGUMENT', {
          name: 'state',
          value: `that of a data set of ${String(state.examples)} examples`,
          expected: `${String(examples)} examples`,
        })
      }
      checkCount('epoch', state.epoch, 0)
      checkCount('consumed', state.consumed, 0, examples)
      order = { seed: state.seed, shuffle: state.shuffle }
      epoch = state.epoch
      consumed = state.consumed
    },
    *[Symbol.iterator]() {
      const own = ++loops
      for (const batch of rest()) {
        if (own !== loops) throw overtaken()
        consumed = Math.min(examples, consumed + options.batch)
        yield batch
      }
      if (own !== loops) throw overtaken()
      epoch++
      consumed = 0
    },
  }
}

/** Two loops at once would repeat batches, and count their epochs twice. */
function overtaken(): Error {
  const value = 'a former one, as another has begun since'
  const expected = 'one loop at a time, or a loader for each'
  return tsrError('ERR_TSR_ARGUMENT', { name: 'the loop over a loader', value, expected })
}

/** What a checkpoint hands over can be anything that was saved as `data`. */
function checkState(state: Partial<LoaderState> | null): void {
  if (typeof state?.seed === 'number' && typeof state.shuffle === 'boolean') return
  const expected = 'what state() of a loader has returned'
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'state', value: JSON.stringify(state), expected })
}
