import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { Adam, AdamW, loadBackend, SGD, type Optimizer } from '@tsrun/training'
import { errorOf } from '../../../distributed/support/outcome.ts'
import { give, numbersOf, onPoints } from './support/points.ts'

beforeAll(async () => {
  await loadBackend('wasm')
})

const optimizers: Record<string, () => Optimizer> = {
  momentum: () => new SGD({ learningRate: 0.1, momentum: 0.9 }),
  Adam: () => new Adam({ learningRate: 0.1 }),
  AdamW: () => new AdamW({ learningRate: 0.1, weightDecay: 0.1 }),
}

/** Steps with the gradient 1 + rank, and what each step has got. */
async function loopOf(
  replica: Parameters<Parameters<typeof onPoints>[3]>[0],
  optimizer: Optimizer,
  { rank }: ProcessGroup,
  steps: number,
): Promise<number[]> {
  const seen: number[] = []
  for (let step = 0; step < steps; step++) {
    give(replica, 'a', 1 + rank)
    give(replica, 'b', 1 + rank)
    const gradients = await replica.gradients()
    seen.push(gradients.get('a')!.dataSync()[0]!)
    optimizer.step(replica.module.parameters, gradients)
  }
  return seen
}

describe('a joined loop', () => {
  it.each(Object.keys(optimizers))(
    'leaves all ranks with the same model and %s state after every epoch',
    async (name) => {
      const epochs = [
        [3, 1, 2],
        [0, 2, 1],
        [1, 1, 1],
      ]
      const ends = await runWorld({ size: 3, seed: 4 }, (group) =>
        onPoints(group, ['a', 'b'], {}, async (replica) => {
          const optimizer = optimizers[name]!()
          for (const lengths of epochs) {
            // a rate that only those with data have got to
            const loop = async (): Promise<void> => {
              await loopOf(replica, optimizer, group, lengths[group.rank]!)
              optimizer.learningRate = 0.1 / (1 + lengths[group.rank]!)
            }
            await replica.join(loop, { optimizer })
          }
          await loopOf(replica, optimizer, group, 1)
          const { values } = replica.module
          return { values, state: await optimizer.state(), rate: optimizer.learningRate }
        }),
      )
      expect(ends[1]).toEqual(ends[0])
      expect(ends[2]).toEqual(ends[0])
    },
  )

  it('divides gradients by the number of ranks that still have data', async () => {
    const wanted = [1, 2]
    const lengths = [1, 2, 2]
    const seen = await runWorld({ size: 3, seed: 5 }, (group) =>
      onPoints(group, ['a', 'b'], {}, async (replica) => {
        const optimizer = new SGD({ learningRate: 0.1 })
        let got: number[] = []
        const loop = async (): Promise<void> => {
          for (let step = 0; step < lengths[group.rank]!; step++) {
            give(replica, 'b', 0)
            give(replica, 'a', [0, 1, 3][group.rank]! - (step === 0 ? 1 / 3 : 0))
            const gradients = numbersOf(await replica.gradients())
            got = [...got, gradients['a']!]
          }
        }
        await replica.join(loop, { optimizer })
        return got
      }),
    )
    expect(seen.map(({ length }) => length)).toEqual(lengths)
    for (const got of seen) {
      got.forEach((gradient, step) => {
        expect(gradient).toBeCloseTo(wanted[step]!, 5)
      })
    }
  })

  it('excludes unsent passes of one rank from the steps of other ranks', async () => {
    const seen = await runWorld({ size: 2, seed: 6 }, (group) =>
      onPoints(group, ['a'], {}, async (replica) => {
        let got: Record<string, number> = {}
        const loop = async (): Promise<void> => {
          replica.synchronizes = group.rank === 0
          give(replica, 'a', group.rank === 0 ? 1 : 100)
          if (group.rank === 0) got = numbersOf(await replica.gradients())
        }
        await replica.join(loop, { optimizer: new SGD({ learningRate: 1 }) })
        return got
      }),
    )
    expect(seen).toEqual([{ a: 1 }, {}])
  })

  it('completes a step that a rank began but did not end', async () => {
    const seen = await runWorld({ size: 2, seed: 7 }, (group) =>
      onPoints(group, ['a', 'b'], { bucketBytes: 4, firstBucketBytes: 4 }, async (replica) => {
        let got: Record<string, number> = {}
        const loop = async (): Promise<void> => {
          give(replica, 'b', 2)
          if (group.rank === 1) return
          give(replica, 'a', 4)
          got = numbersOf(await replica.gradients())
        }
        await replica.join(loop, { optimizer: new SGD({ learningRate: 1 }) })
        return got
      }),
    )
    expect(seen).toEqual([{ a: 2, b: 2 }, {}])
  })

  it('accumulates passes in the same way as without join()', async () => {
    const passes = async (group: ProcessGroup, isJoined: boolean) =>
      await onPoints(group, ['a'], {}, async (replica) => {
        let got: Record<string, number> = {}
        const loop = async (): Promise<void> => {
          replica.synchronizes = false
          give(replica, 'a', 1)
          give(replica, 'a', 2)
          got = numbersOf(await replica.gradients())
        }
        if (isJoined) await replica.join(loop, { optimizer: new SGD({ learningRate: 1 }) })
        else await loop()
        return got
      })
    for (const isJoined of [false, true]) {
      const seen = await runWorld({ size: 2, seed: 8 }, (group) => passes(group, isJoined))
      expect(seen).toEqual([{ a: 3 }, { a: 3 }])
    }
  })

  it('asks for the optimizer if it is missing', async () => {
    await runWorld({ size: 1 }, (group) =>
      onPoints(group, ['a'], {}, async (replica) => {
        const loop = async (): Promise<void> => Promise.resolve()
        const wrong = [undefined, {}, { optimizer: new SGD({ learningRate: 1 }), all: true }]
        for (const options of wrong) {
          const error = await errorOf(() => replica.join(loop, options as never))
          expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
        }
      }),
    )
  })
})
