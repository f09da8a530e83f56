import { argumentError, callback, count, declareOptions, where, type Rules } from '@tsrun/core'
import { traceWait } from '@tsrun/distributed/record'
import type { DataRecord, ExampleBatch, FieldRules } from '@tsrun/training'
import {
  endsOfShare,
  epochOrder,
  exampleBatch,
  orderRules,
  shareRule,
  type Share,
} from '@tsrun/training/parts'
import { recordsIn } from './record-files.ts'
import { examplesAt, type RecordPlace } from './records.ts'

/** Options of `streamLoader`. */
export interface StreamOptions {
  /** The names of the parts of the data, for example files. */
  readonly shards: readonly string[]
  /** How to make fields from the records; see `examplesFrom`. */
  readonly fields: FieldRules
  /** The number of examples in a batch, over all ranks. */
  readonly batch: number
  /** The part of each batch for this rank, as for `batches`; default [0, 1]. */
  readonly share?: Share
  /**
   * The size of the shuffle buffer in records; default 0, no shuffling. If above 0, the order of
   * the shards is shuffled too.
   */
  readonly shuffle?: number
  /** The seed of the order; default 0. The order also depends on the epoch. */
  readonly seed?: number
  /** The number of batches to read ahead; default 2. */
  readonly prefetch?: number
  /**
   * Reads the records of a shard. By default, a shard is the path of a .csv, .tsv, .jsonl, .ndjson
   * or .parquet file.
   */
  readonly open?: (shard: string) => AsyncIterable<DataRecord>
}

const readOptions = declareOptions({
  shards: where<readonly string[]>(
    (value) => Array.isArray(value) && value.length > 0,
    'a list of at least one shard',
  ),
  fields: where<FieldRules>(
    (value) => typeof value === 'object' && value !== null,
    'rules by the names of fields, as { inputs: ..., labels: ... }',
  ),
  batch: count({ from: 1 }),
  share: shareRule.default([0, 1]),
  shuffle: count().default(0),
  seed: orderRules.seed,
  prefetch: count().default(2),
  open: callback<(shard: string) => AsyncIterable<DataRecord>>(
    'a function that returns an async iterable',
  ).default(recordsIn),
} satisfies Rules<StreamOptions>)

/** The position in a stream, to save in a checkpoint. The position is the same on all ranks. */
export interface StreamState {
  readonly epoch: number
  /** The shard in which the current shuffle buffer begins, as an index in the shard order of the epoch. */
  readonly shard: number
  /** The record with which the current shuffle buffer begins, as an index in the shard. */
  readonly record: number
  /** The size of the current shuffle buffer in records; 0 before the first batch. */
  readonly length: number
  /** The number of earlier shuffle buffers of the epoch. */
  readonly window: number
  /** The number of examples of the current shuffle buffer that all ranks together have consumed. */
  readonly consumed: number
  readonly seed: number
}

/** Yields batches of records. Reads the records while the loop runs. */
export interface StreamLoader extends AsyncIterable<ExampleBatch> {
  /** The current or next epoch. */
  readonly epoch: number
  /** Returns the position after the last returned batch. Batches that were only read ahead do not count. */
  state(): StreamState
  /** Continues exactly from a saved position, on any number of ranks. Uses the seed of the state. */
  loadState(state: StreamState): void
}

/**
 * Creates a source of batches from data that does not fit into memory. A `for await` loop continues
 * where the previous loop or job stopped, and runs to the end of the epoch. While its body runs,
 * the loader reads ahead.
 *
 * Every rank reads all records, and makes tensors of its share of each batch.
 *
 * @throws ERR_TSR_ARGUMENT; from the loop the errors of `open` and `examplesFrom`
 *
 * @example
 * const loader = streamLoader({
 *   shards: ['part-0.jsonl', 'part-1.jsonl'],
 *   fields: { inputs: 'x', labels: 'y' },
 *   ...{ batch: 32, shuffle: 10_000, share: run.share },
 * })
 * for await (const batch of loader) await run.step(batch)
 */
export function streamLoader(options: StreamOptions): StreamLoader {
  const complete = readOptions(options)
  let state = beginning(0, complete.seed)
  return {
    get epoch() {
      return state.epoch
    },
    state: () => state,
    loadState(next) {
      for (const key of ['epoch', 'shard', 'record', 'length', 'window', 'consumed'] as const) {
        count().check(`${key} of the state`, (next as Partial<StreamState> | null)?.[key])
      }
      orderRules.seed.check('seed of the state', next.seed)
      count({ to: complete.shards.length }).check('shard of the state', next.shard)
      state = next
    },
    async *[Symbol.asyncIterator]() {
      const { epoch, seed } = state
      for await (const { batch, after } of prefetch(
        readBatches(complete, state),
        complete.prefetch,
      )) {
        state = after
        yield batch
      }
      state = beginning(epoch + 1, seed)
    },
  }
}

function beginning(epoch: number, seed: number): StreamState {
  return { epoch, shard: 0, record: 0, length: 0, window: 0, consumed: 0, seed }
}

async function* readBatches(options: ReturnType<typeof readOptions>, from: StreamState) {
  const { batch: size, shuffle, share, fields, open } = options
  const { epoch, seed } = from
  const usual = Math.ceil(Math.max(shuffle, 1) / size) * size
  const order = epochOrder(options.shards.length, { seed, epoch, shuffle: shuffle > 0 })
  const shards = Array.from(order, (index) => options.shards[index]!)
  let { window, consumed } = from
  for await (const { shard, record, length, records } of windowsOf(shards, open, from, usual)) {
    const key = { seed, epoch: epoch * 2 ** 20 + window, shuffle: shuffle > 0 }
    const places = epochOrder(records.length, key)
    for (; consumed < records.length; consumed = Math.min(consumed + size, records.length)) {
      const whole = places.subarray(consumed, consumed + size)
      const [row, end] = endsOfShare(share, whole.length)
      const own = Array.from(whole.subarray(row, end), (i) => records[i]!)
      const indices = Int32Array.from(own.keys())
      const values = own.map(({ value }) => value)
      const data = examplesAt(values, fields, (row) => own[row]!)
      const batch = { ...exampleBatch(data, indices), row, share }
      const after = {
        epoch,
        shard,
        record,
        length,
        window,
        consumed: consumed + whole.length,
        seed,
      }
      yield { batch, after }
    }
    consumed = 0
    window++
  }
}

interface PlacedRecord extends RecordPlace {
  readonly value: DataRecord
}

/**
 * Yields the contents of the shuffle buffers, each with the position of its first record.
 *
 * @param usual - the number of records in a buffer. The first buffer has the saved size instead, because
 *   the order of its records depends on its size.
 */
async function* windowsOf(
  shards: readonly string[],
  open: (shard: string) => AsyncIterable<DataRecord>,
  from: Pick<StreamState, 'shard' | 'record' | 'length'>,
  usual: number,
) {
  let begin = { shard: from.shard, record: from.record, length: from.length || usual }
  let records: PlacedRecord[] = []
  for (let shard = from.shard; shard < shards.length; shard++) {
    let record = 0
    const skipped = shard === from.shard ? from.record : 0
    const path = shards[shard]!
    for await (const value of open(path)) {
      if (record++ < skipped) continue
      records.push({ value, path, record })
      if (records.length < begin.length) continue
      yield { ...begin, records }
      begin = { shard, record, length: usual }
      records = []
    }
    if (skipped > record) {
      throw argumentError(
        `shard ${path}`,
        `${record} records`,
        `at least ${skipped}, as when the state was saved`,
      )
    }
  }
  if (records.length > 0) yield { ...begin, records }
}

/**
 * Requests up to `depth` items ahead of the current one, and yields them in order. If the request
 * of an item fails, the error is thrown in its place.
 *
 * @example
 * for await (const record of prefetch(jsonlRecords('train.jsonl'), 100)) ...
 */
export async function* prefetch<T>(items: AsyncIterable<T>, depth: number): AsyncGenerator<T> {
  const iterator = items[Symbol.asyncIterator]()
  const pending: Promise<IteratorResult<T>>[] = []
  const ask = () => {
    const next = iterator.next()
    // Avoid an unhandled rejection: the consumer gets the error when it awaits this item.
    next.catch(() => undefined)
    pending.push(next)
  }
  try {
    for (let i = 0; i <= depth; i++) ask()
    for (;;) {
      const next = await traceWait('input', {}, () => pending.shift()!)
      if (next.done === true) return
      ask()
      yield next.value
    }
  } finally {
    await Promise.allSettled(pending)
    await iterator.return?.()
  }
}
