import { batches, dataLoader, sampler, type SamplerOptions } from '@tsrun/training'

const whole = (examples: number) => Array.from({ length: examples }, (_, i) => i)
const sorted = (indices: Iterable<number>) => [...indices].sort((a, b) => a - b)

/** What each of the ranks gets. */
function parts(options: Omit<SamplerOptions, 'rank'>, epoch = 0): number[][] {
  return Array.from({ length: options.ranks }, (_, rank) => {
    const mine = sampler({ ...options, rank })
    mine.setEpoch(epoch)
    const indices = [...mine]
    expect(mine).toHaveLength(indices.length)
    return indices
  })
}

const one = { examples: 4, rank: 0, ranks: 1 }

const sizes = [
  { examples: 12, ranks: 4 },
  { examples: 13, ranks: 4 },
  { examples: 15, ranks: 4 },
  { examples: 3, ranks: 4 },
  { examples: 2, ranks: 4 },
  { examples: 0, ranks: 2 },
  { examples: 10, ranks: 1 },
]

describe.each([true, false])('a sampler, shuffle: %p', (shuffle) => {
  it.each(sizes)(
    'gives out each of $examples examples once over $ranks ranks',
    ({ examples, ranks }) => {
      const mine = parts({ examples, ranks, shuffle })
      expect(sorted(mine.flat())).toEqual(whole(examples))
      const lengths = mine.map(({ length }) => length)
      // not -0
      for (let rank = 0; rank < ranks; rank++) {
        expect(sampler({ examples, rank, ranks }).length).toBe(lengths[rank])
      }
      expect(Math.max(...lengths) - Math.min(...lengths)).toBeLessThanOrEqual(1)
    },
  )

  it.each(sizes)(
    'drops the last of $examples examples, so that $ranks ranks have equally many',
    (options) => {
      const { examples, ranks } = options
      const mine = parts({ ...options, shuffle, dropLast: true })
      const each = Math.floor(examples / ranks)
      expect(mine.map(({ length }) => length)).toEqual(new Array(ranks).fill(each))
      expect(new Set(mine.flat()).size).toBe(each * ranks)
    },
  )
})

it('a sampler has a different order in each epoch, and repeats the order of a repeated epoch', () => {
  const mine = sampler({ examples: 50, rank: 1, ranks: 2, seed: 3 })
  expect(mine.epoch).toBe(0)
  const first = [...mine]
  expect([...mine]).toEqual(first)
  mine.setEpoch(1)
  expect([...mine.indices]).not.toEqual(first)
  mine.setEpoch(0)
  expect([...mine]).toEqual(first)
  expect(parts({ examples: 50, ranks: 2, seed: 4 })[1]).not.toEqual(first)
})

it('a sampler distributes the batches of a single process over all ranks', () => {
  const dataset = { size: 11, fields: {} }
  const single = [...batches(dataset, { batch: 6, seed: 5, epoch: 2 })]
  const ranks = parts({ examples: 11, ranks: 3, seed: 5 }, 2)
  single.forEach(({ indices }, i) => {
    const together = ranks.flatMap((mine) => mine.slice(2 * i, 2 * i + 2))
    expect(sorted(together)).toEqual(sorted(indices))
  })
})

it.each([
  [{ examples: -1, rank: 0, ranks: 1 }, /examples is -1; expected a whole number from 0/],
  [{ examples: 4, rank: 2, ranks: 2 }, /\[2, 2\]; expected an index and a count above it/],
  [{ examples: 4, rank: 0, ranks: 0 }, /ranks is 0; expected a whole number from 1/],
  [{ examples: 4, rank: 0.5, ranks: 2 }, /rank is 0.5; expected a whole number from 0/],
  [
    { ...one, drop_last: true },
    /options is an object with the unknown key "drop_last"; expected .* dropLast /,
  ],
  [{ ...one, shuffle: 'no' as never }, /shuffle is "no"; expected true or false/],
  [{ ...one, dropLast: 1 as never }, /dropLast is 1; expected true or false/],
  [{ ...one, seed: Number.NaN }, /seed is NaN; expected a number/],
  [{ ...one, seed: 'x' as never }, /seed is "x"/],
])('a sampler refuses the options %p', (options, message) => {
  expect(() => sampler(options)).toThrow(message)
  expect(() => sampler(options)).toThrow(expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }))
})

it.each([
  [
    { batchSize: 2 },
    /options is an object with the unknown key "batchSize"; expected only batch, /,
  ],
  [{ batch: 2, suffle: false }, /the unknown key "suffle"/],
  [{ batch: 2, shuffle: 'no' }, /shuffle is "no"/],
  [{ batch: 2, dropLast: 0 }, /dropLast is 0/],
  [{ batch: 2, seed: 'x' }, /seed is "x"/],
  [{ batch: 2, seed: Number.NaN }, /seed is NaN/],
  [{ batch: '2' }, /batch is "2"/],
  [{ batch: 2, share: 2 }, /share is 2; expected an index and a count/],
  [undefined, /options is undefined; expected an object with batch, /],
])('batches() and the data loader refuse the options %j', (options, message) => {
  const dataset = { size: 4, fields: {} }
  for (const make of [batches, dataLoader]) {
    expect(() => make(dataset, options as never)).toThrow(message)
  }
})

it.each([Number.NaN, -1, 0.5])(
  'batches() refuses epoch %p, and the data loader refuses the option epoch',
  (epoch) => {
    const dataset = { size: 4, fields: {} }
    expect(() => batches(dataset, { batch: 2, epoch })).toThrow(`epoch is ${String(epoch)}`)
    expect(() => dataLoader(dataset, { batch: 2, epoch } as never)).toThrow(
      /the unknown key "epoch"/,
    )
  },
)

it('a sampler refuses an invalid epoch', () => {
  expect(() => {
    sampler({ examples: 4, rank: 0, ranks: 1 }).setEpoch(-1)
  }).toThrow(/epoch is -1/)
})
