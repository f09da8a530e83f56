import { batches, dataLoader, type Examples, type Loader, type LoaderState } from '@tsrun/training'

const dataset = (size: number): Examples => ({ size, fields: {} })
const EXAMPLES = 37

/** One loader a rank. */
function loaders(batch: number, ranks: number, state?: LoaderState): Loader[] {
  return Array.from({ length: ranks }, (_, rank) => {
    const loader = dataLoader(dataset(EXAMPLES), { batch, seed: 7, share: [rank, ranks] })
    if (state !== undefined) loader.loadState(JSON.parse(JSON.stringify(state)) as LoaderState)
    return loader
  })
}

/** The examples of the next batches, those of all ranks together: until `count`, or the epoch ends. */
function take(ranks: readonly Loader[], count = Infinity): number[][] {
  const taken: number[][] = []
  for (const loader of ranks) {
    let i = 0
    for (const { indices } of loader) {
      taken[i] = [...(taken[i] ?? []), ...indices]
      if (++i === count) break
    }
  }
  return taken
}

function epochOf(epoch: number, seed = 7): number[] {
  return [...batches(dataset(EXAMPLES), { batch: 1, seed, epoch })].flatMap(({ indices }) => [
    ...indices,
  ])
}

it('a data loader runs one epoch after another, in the order of batches()', () => {
  const [loader] = loaders(8, 1)
  for (const epoch of [0, 1]) {
    expect(loader).toMatchObject({ epoch, remaining: 5 })
    expect(take([loader!]).flat()).toEqual(epochOf(epoch))
  }
})

it.each<{ from: [batch: number, ranks: number]; to: [batch: number, ranks: number] }>([
  { from: [8, 2], to: [8, 4] },
  { from: [8, 4], to: [8, 1] },
  { from: [8, 2], to: [6, 3] },
  { from: [4, 1], to: [16, 2] },
  { from: [5, 5], to: [37, 2] },
])('a data loader resumes with another size: batch and ranks $from, then $to', ({ from, to }) => {
  const before = loaders(...from)
  take(before)
  const first = take(before, 3)
  const states = before.map((loader) => loader.state())
  expect(new Set(states.map((state) => JSON.stringify(state))).size).toBe(1)
  expect(states[0]).toMatchObject({ epoch: 1, consumed: 3 * from[0] })

  const after = loaders(...to, states[0])
  const rest = take(after)
  expect([...first, ...rest].flat()).toEqual(epochOf(1))
  expect(rest[0]).toHaveLength(Math.min(to[0], EXAMPLES - 3 * from[0]))
  expect(take(after).flat()).toEqual(epochOf(2))
})

it('a data loader continues in the same process where the previous loop stopped', () => {
  const [loader] = loaders(8, 1)
  const parts = [take([loader!], 2), take([loader!], 1), take([loader!])]
  expect(parts.flat(2)).toEqual(epochOf(0))
  expect(loader!.epoch).toBe(1)
})

it('a data loader lets only the latest of two loops continue', () => {
  const [loader] = loaders(8, 1)
  const [first, second] = [loader![Symbol.iterator](), loader![Symbol.iterator]()]
  const [one, two] = [first, second].map((loop) => loop.next().value as { indices: Int32Array })
  expect([...one!.indices, ...two!.indices]).toEqual(epochOf(0).slice(0, 16))
  expect(() => first.next()).toThrow(
    /the loop over a loader is continued after another loop over it was started/,
  )
  expect(() => {
    for (const outer of loader!) for (const inner of loader!) expect(inner).not.toBe(outer)
  }).toThrow(expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }))
  // the inner one has come to the end
  expect(loader!.state()).toMatchObject({ epoch: 1, consumed: 0 })
})

it('a resumed data loader ends the epoch if its last batch was returned before the checkpoint', () => {
  const [loader] = loaders(8, 1)
  take([loader!], 5)
  expect(loader!.state()).toMatchObject({ epoch: 0, consumed: EXAMPLES })
  const [next] = loaders(4, 1, loader!.state())
  expect(take([next!])).toEqual([])
  expect(take([next!]).flat()).toEqual(epochOf(1))
})

it('a resumed data loader drops an incomplete last batch of the remaining examples', () => {
  const options = { batch: 10, seed: 7, dropLast: true }
  const loader = dataLoader(dataset(EXAMPLES), options)
  expect(take([loader], 2).flat()).toEqual(epochOf(0).slice(0, 20))
  const smaller = dataLoader(dataset(EXAMPLES), { ...options, batch: 8 })
  smaller.loadState(loader.state())
  expect(take([smaller]).flat()).toEqual(epochOf(0).slice(20, 36))
  expect(take([loader]).flat()).toEqual(epochOf(0).slice(20, 30))
})

it('a resumed data loader keeps the saved order, even if its seed option differs', () => {
  const loader = dataLoader(dataset(EXAMPLES), { batch: 8, seed: 1 })
  loader.loadState(loaders(8, 1)[0]!.state())
  expect(take([loader]).flat()).toEqual(epochOf(0))
})

it('a data loader refuses the state of a different data set, and invalid positions', () => {
  const [loader] = loaders(8, 1)
  const state = loader!.state()
  for (const [change, message] of [
    [{ examples: 36 }, /state is one for a data set of 36 examples; expected 37 examples/],
    [{ consumed: 38 }, /consumed is 38; expected a whole number from 0 to 37/],
    [{ epoch: 0.5 }, /epoch is 0.5/],
  ] as const) {
    expect(() => {
      loader!.loadState({ ...state, ...change })
    }).toThrow(message)
  }
  for (const other of [null, { position: 3 }, { ...state, seed: '7' }]) {
    expect(() => {
      loader!.loadState(other as never)
    }).toThrow(/state is .*; expected the result of state\(\) of a loader/)
  }
  expect(loader!.state()).toEqual(state)
  expect(() => dataLoader(dataset(4), { batch: 0 })).toThrow(/batch is 0/)
  expect(() => dataLoader(dataset(4), { batch: 2, share: [2, 2] })).toThrow(/share is \[2, 2\]/)
})
