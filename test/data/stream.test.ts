import { data } from '@tensorflow/tfjs'
import { prefetch, streamLoader, type DataRecord, type StreamState } from '@tsrun/data'
import { loadBackend } from '@tsrun/training'
import { failure } from '../training/parallel/support/failure.ts'

beforeAll(() => loadBackend('cpu'))

/** Shards `0` to `3` with 0 to 7 records each, of 11 in all. */
const sizes = [4, 0, 5, 2]
async function* open(shard: string): AsyncGenerator<DataRecord> {
  for (let i = 0; i < sizes[Number(shard)]!; i++) {
    await Promise.resolve()
    yield { id: 10 * Number(shard) + i }
  }
}
const shards = ['0', '1', '2', '3']
const everything = [0, 1, 2, 3, 20, 21, 22, 23, 24, 30, 31]

interface Options {
  readonly shuffle?: number
  readonly share?: readonly [number, number]
  readonly batch?: number
}
const loaderOf = (options: Options = {}) =>
  streamLoader({ shards, open, fields: { inputs: 'id', labels: 'id' }, batch: 3, ...options })

/** The ids of each batch until the end of the epoch, or of `limit` batches. */
async function idsOf(loader: ReturnType<typeof loaderOf>, limit = Infinity): Promise<number[][]> {
  const found: number[][] = []
  for await (const { inputs } of loader) {
    const tensor = inputs()
    found.push([...tensor.dataSync()])
    tensor.dispose()
    if (found.length >= limit) break
  }
  return found
}

describe('a stream', () => {
  it('yields each record once, in order unless shuffled', async () => {
    const loader = loaderOf()
    expect(await idsOf(loader)).toEqual([
      [0, 1, 2],
      [3, 20, 21],
      [22, 23, 24],
      [30, 31],
    ])
    expect(loader.epoch).toBe(1)
    const shuffled = loaderOf({ shuffle: 6 })
    const [one, two] = [await idsOf(shuffled), await idsOf(shuffled)]
    for (const epoch of [one, two]) {
      expect(epoch.flat()).not.toEqual(everything)
      expect(epoch.flat().sort((a, b) => a - b)).toEqual(everything)
    }
    expect(one).not.toEqual(two)
  })

  it.each([0, 4, 100])('continues exactly from any position, shuffling %d', async (shuffle) => {
    const whole = loaderOf({ shuffle })
    const wanted = [...(await idsOf(whole)), ...(await idsOf(whole))]
    for (let count = 1; count < 4; count++) {
      const before = loaderOf({ shuffle })
      const seen = await idsOf(before, count)
      const state = JSON.parse(JSON.stringify(before.state())) as StreamState
      const after = loaderOf({ shuffle })
      after.loadState(state)
      expect([...seen, ...(await idsOf(after)), ...(await idsOf(after))]).toEqual(wanted)
    }
  })

  it('continues on another number of ranks, with another batch size', async () => {
    const before = [0, 1].map((rank) => loaderOf({ shuffle: 5, share: [rank, 2] }))
    const seen = (await Promise.all(before.map((loader) => idsOf(loader, 2)))).flat(2)
    expect(before[0]!.state()).toEqual(before[1]!.state())
    for (const rank of [0, 1, 2]) {
      const loader = loaderOf({ shuffle: 5, batch: 4, share: [rank, 3] })
      loader.loadState(before[0]!.state())
      seen.push(...(await idsOf(loader)).flat())
    }
    expect(seen.sort((a, b) => a - b)).toEqual(everything)
  })

  it("gives the place of a rank's rows in the batch of all ranks", async () => {
    const places: number[][] = [[], [], [], []]
    for (const rank of [0, 1]) {
      let at = 0
      for await (const { row, size } of loaderOf({ share: [rank, 2] })) {
        for (let i = 0; i < size; i++) places[at]!.push(row! + i)
        at++
      }
    }
    expect(places).toEqual([[0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 1]]) // prettier-ignore
  })

  it('names the shard and the number of a record that cannot be used', async () => {
    async function* spoiled(shard: string): AsyncGenerator<DataRecord> {
      for await (const record of open(shard)) yield record['id'] === 23 ? { id: 'x' } : record
    }
    const loader = streamLoader({ shards, open: spoiled, fields: { inputs: 'id' }, batch: 3 })
    const refused = failure('ERR_TSR_DATASET', /file 2 .*record 4: "x" is not a number/)
    await expect(idsOf(loader)).rejects.toEqual(refused)
  })

  it('refuses invalid states and shards', async () => {
    const refused = (message: RegExp) => failure('ERR_TSR_ARGUMENT', message)
    expect(() => {
      loaderOf().loadState({} as StreamState)
    }).toThrow(refused(/epoch of the state/))
    expect(() => streamLoader({ shards: [], fields: {}, batch: 1 })).toThrow(refused(/shards/))
    const loader = loaderOf()
    loader.loadState({ ...loader.state(), record: 9 })
    await expect(idsOf(loader)).rejects.toEqual(refused(/shard 0.*4 records/s))
  })

  it('reads a data set of tf.data', async () => {
    const dataset = data.array([{ x: [1, 2] }, { x: [3, 4] }, { x: [5, 6] }])
    const loader = streamLoader({
      shards: ['all'],
      async *open() {
        const iterator = await dataset.iterator()
        for (let next = await iterator.next(); !next.done; next = await iterator.next()) {
          yield next.value
        }
      },
      fields: { inputs: 'x', labels: ({ x }) => (x as number[])[0]! },
      batch: 2,
    })
    expect(await idsOf(loader)).toEqual([
      [1, 2, 3, 4],
      [5, 6],
    ])
  })

  it('throws the error of a shard in place of its batch', async () => {
    const loader = streamLoader({
      shards: ['a'],
      async *open() {
        yield* [{ x: 1 }, { x: 2 }]
        await Promise.resolve()
        throw new Error('torn')
      },
      fields: { inputs: 'x', labels: 'x' },
      batch: 2,
    })
    const seen: number[] = []
    const loop = async () => {
      for await (const { size } of loader) seen.push(size)
    }
    await expect(loop()).rejects.toThrow('torn')
    expect(seen).toEqual([2])
  })
})

describe('prefetch', () => {
  it('reads ahead up to its limit, and closes its shards', async () => {
    const log: string[] = []
    async function* numbers() {
      try {
        for (let i = 0; i < 9; i++) {
          log.push(`read ${i}`)
          yield await Promise.resolve(i)
        }
      } finally {
        log.push('closed')
      }
    }
    for await (const i of prefetch(numbers(), 2)) {
      await new Promise((resolve) => {
        setImmediate(resolve)
      })
      log.push(`used ${i}`)
      if (i === 1) break
    }
    expect(log).toEqual([
      ...['read 0', 'read 1', 'read 2', 'read 3', 'used 0', 'read 4', 'used 1', 'closed'],
    ])
  })
})
