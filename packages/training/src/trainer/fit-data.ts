import { argumentError, number, object, shown } from '@tsrun/core'
import { traceWait } from '@tsrun/distributed/record'
import type { Examples } from '../data/examples.ts'
import { dataLoader, type Loader, type LoaderState } from '../data/batches.ts'
import { compareFacts } from './agreement.ts'
import { isBatch, type AnyBatch } from './batch.ts'
import type { Trainer } from './trainer.ts'

/** Batches of this replica. */
export type Batches = Iterable<AnyBatch> | AsyncIterable<AnyBatch>

/** The training data of `fit`. */
export type FitData = Examples | Loader | Batches | ((step: number) => AnyBatch | Promise<AnyBatch>)

type EvaluatedData = Examples | Batches | AnyBatch

/** A data set, batches of this replica, or a function that returns new ones for each evaluation. */
export type EvaluationData = Examples | Batches | (() => EvaluatedData | Promise<EvaluatedData>)

/** A source of batches whose position is saved in checkpoints. */
export interface Source {
  /** The number of completed epochs. */
  readonly epoch: number
  /** The number of batches left until `epochs` epochs are complete, if known. */
  left?(epochs: number): number
  /** Returns the remaining batches of this epoch. The epoch ends when all of them are consumed. */
  batches(): Batches
  state(): unknown
  loadState(state: unknown): void | Promise<void>
}

export function sourceOf(
  run: Trainer,
  data: FitData,
  { batch, seed }: { readonly batch: number | undefined; readonly seed: number | undefined },
): Source {
  if (typeof data === 'function') {
    // A function of the step number has no epochs and no position.
    return {
      epoch: 0,
      async *batches() {
        for (;;) yield await data(run.steps)
      },
      state: () => null,
      loadState: () => undefined,
    }
  }
  if (typeof (data as unknown) !== 'object' || (data as unknown) === null)
    throw notData('data', data)
  if (isExamples(data)) {
    if (batch === undefined) {
      throw argumentError(
        'batch',
        'undefined',
        'the number of examples in a batch, over all replicas',
      )
    }
    return loaderSource(
      run,
      dataLoader(data, { batch, share: run.share, ...(seed !== undefined && { seed }) }),
    )
  }
  if ('loadState' in data && 'state' in data) return loaderSource(run, data)
  if (isIterable(data)) return iterableSource(run, data)
  throw notData('data', data)
}

function isExamples(data: object): data is Examples {
  return 'fields' in data
}

export function isIterable(data: object): data is Batches {
  return Symbol.iterator in data || Symbol.asyncIterator in data
}

function loaderSource(run: Trainer, loader: Loader): Source {
  return {
    get epoch() {
      return loader.epoch
    },
    left: (epochs) =>
      // A `StreamLoader` has no length.
      'length' in loader
        ? loader.remaining + loader.length * (epochs - loader.epoch - 1)
        : Infinity,
    batches: () => together(run, loader),
    state: () => loader.state(),
    loadState: (state) => {
      if (typeof state !== 'object' || state === null || 'used' in state) {
        throw otherPosition(state, 'that of a loader')
      }
      loader.loadState(state as LoaderState)
    },
  }
}

/** Returns the batches of an epoch. If their number is unknown, ranks check that all have equally many. */
function together(run: Trainer, data: Loader | Batches): Batches {
  // `fit` has already compared known lengths.
  return lengthOf(data) === undefined ? checked(run, data) : data
}

async function* checked(run: Trainer, batches: Batches): AsyncGenerator<AnyBatch> {
  let before = 0
  for await (const batch of batches) {
    await checkNext(run, true, before++)
    yield batch
  }
  await checkNext(run, false, before)
}

/** The number of examples of a data set, or of remaining batches; undefined if unknown in advance. */
export function lengthOf(data: FitData | EvaluationData): number | undefined {
  if (typeof data === 'function') return undefined
  const { size, remaining, length } = data as Partial<
    Record<'size' | 'remaining' | 'length', unknown>
  >
  return [size, remaining, length].find((each) => typeof each === 'number')
}

const positionRule = object({ epoch: number, used: number })

/** Iterates over `data` once per epoch. After a resume, skips the batches that were already used. */
function iterableSource(run: Trainer, data: Batches): Source {
  let [epoch, used] = [0, 0]
  return {
    get epoch() {
      return epoch
    },
    async *batches() {
      let place = 0
      for await (const batch of together(run, data)) {
        if (place++ < used) continue
        used++
        yield batch
      }
      epoch++
      used = 0
    },
    state: () => ({ epoch, used }),
    loadState: (state) => {
      if (!positionRule.is(state)) throw otherPosition(state, 'that of batches, { epoch, used }')
      ;({ epoch, used } = state)
    },
  }
}

/**
 * Checks that either all ranks or none have another batch, after `before` batches of this epoch. A rank
 * with more batches would wait forever in its next step.
 */
async function checkNext({ layout }: Trainer, has: boolean, before: number): Promise<void> {
  const { world } = layout
  if (world.size === 1) return
  const having = Uint32Array.of(Number(has))
  await world.allReduce(having, { label: 'whether there is another batch' })
  const others = having[0]!
  if (others === 0 || others === world.size) return
  throw argumentError(
    'data',
    has
      ? `longer than ${before} batches, unlike that of ${world.size - others} of ${world.size} ranks`
      : `over after ${before} batches, unlike that of ${others} of ${world.size} ranks`,
    'as many batches on each rank; one may be empty, as those of batches(data, { share: run.share }) may be',
  )
}

/** Returns this replica's batches for an evaluation. All ranks must call it. Errors contain `name`. */
export async function evaluationData(
  run: Trainer,
  { data, batch }: { readonly data: AnyBatch | EvaluationData; readonly batch: number },
  name: string,
): Promise<Batches> {
  const found: unknown = typeof data === 'function' ? await data() : data
  if (isBatch(found)) return [found]
  if (typeof found !== 'object' || found === null) throw notData(name, found)
  const isSet = isExamples(found)
  if (!isSet && !isIterable(found)) throw notData(name, found)
  const { world } = run.layout
  // If each replica is on one rank, replicas may have different numbers of batches.
  const isTogether = run.isSharded || run.share[1] < world.size
  if (isSet || isTogether) {
    await compareFacts(world, 'length of the evaluation data', { [name]: lengthOf(found) })
  }
  if (isSet) return dataLoader(found, { batch, shuffle: false, share: run.share })
  return isTogether ? together(run, found) : found
}

function notData(name: string, data: unknown): Error {
  const reader =
    typeof data === 'string'
      ? '; to read a file, `npm install @tsrun/data` and pass the result of its `readExamples`'
      : ''
  return argumentError(
    name,
    shown(data),
    `a data set, batches, or a function that makes them${reader}`,
  )
}

function otherPosition(state: unknown, expected: string): Error {
  return argumentError(
    'the position in the data of the checkpoint',
    shown(state),
    `${expected}, as data is now; with other data, start a new epoch: run.load(directory), then fit without resume`,
  )
}

/** Yields the values of an iterable, and records the time waited for each in the job's trace, if any. */
export async function* traceInput<T>(values: AsyncIterable<T> | Iterable<T>): AsyncGenerator<T> {
  const iterator =
    Symbol.asyncIterator in values ? values[Symbol.asyncIterator]() : values[Symbol.iterator]()
  let isSuspended = false
  try {
    for (;;) {
      const next = await traceWait('input', {}, () => iterator.next())
      if (next.done === true) return
      isSuspended = true
      yield next.value
      isSuspended = false
    }
  } finally {
    if (isSuspended) await iterator.return?.()
  }
}
