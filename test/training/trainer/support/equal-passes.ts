import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import {
  examples,
  Linear,
  loadBackend,
  sequential,
  SGD,
  trainer,
  type MeshShape,
  type TrainerOptions,
} from '@tsrun/training'
import { quiet } from './small-training.ts'

const recipe = sequential({
  a: (name) => new Linear({ name, inputs: 3, outputs: 4, activation: 'tanh' }),
  b: (name) => new Linear({ name, inputs: 4, outputs: 2 }),
})

/** The losses of an epoch of `size` examples in batches of 8. */
async function losses(size: number, shape: MeshShape, options: TrainerOptions) {
  const data = examples({
    inputs: { values: Float32Array.from({ length: size * 3 }, (_, i) => Math.sin(i)), shape: [3] },
    labels: Int32Array.from({ length: size }, (_, i) => i % 2),
  })
  const ranks = Object.values(shape).reduce((product, axis) => product * axis, 1)
  const all = await runWorld({ size: ranks, seed: 1 }, async (group) => {
    const sizes: Record<string, number> = { dp: 1, ...shape }
    const mesh = await initDeviceMesh(sizes, group)
    const optimizer = new SGD({ learningRate: 0.1 })
    const run = await trainer(recipe, { mesh, optimizer, ...options })
    const { losses } = await run.fit(data, { batch: 8, epochs: 1, ...quiet })
    run.dispose()
    return losses
  })
  for (const each of all) expect(each).toEqual(all[0])
  return all[0]!
}

const layouts: readonly (readonly [MeshShape, TrainerOptions])[] = [
  [{ dp: 2 }, { zero: 3, accumulate: 2 }],
  [{ dp: 2 }, { zero: 3, accumulate: 4 }],
  [{ dp: 4 }, { zero: 3, accumulate: 2 }],
  [{ dp: 4 }, { zero: 3, accumulate: 3, recompute: true }],
  [{ dp: 2 }, { zero: 2, accumulate: 3 }],
  [{ dp: 2 }, { accumulate: 4 }],
  [{ dp: 2, shard: 2 }, { accumulate: 2 }],
  [
    { dp: 2, pp: 2 },
    { zero: 3, microbatches: 3 },
  ],
]

/** Of the last batch, ranks have different numbers of parts, or none. */
const sizes = [33, 35, 39].map((size, i) => ({ size, i }))

/** Whether to train with a size in a layout, by their places in the lists. */
type Choice = (size: number, layout: number) => boolean

/** Each size in a third of the layouts, so that each layout trains with one size. */
export const isUsual: Choice = (size, layout) => (size + layout) % 3 === 0

/** Holds the losses of an epoch in each layout against those of one process. */
export function describeEqualPasses(isChosen: Choice): void {
  beforeAll(() => loadBackend('wasm'))

  describe.each(sizes)('an epoch of $size examples', ({ size, i }) => {
    let expected: readonly number[]
    beforeAll(async () => {
      expected = await losses(size, {}, {})
    })

    it.each(layouts.filter((_, layout) => isChosen(i, layout)))(
      'has the losses of one process: %j %j',
      async (shape, options) => {
        const found = await losses(size, shape, options)
        expect(found.length).toBe(expected.length)
        found.forEach((loss, i) => {
          expect(loss).toBeCloseTo(expected[i]!, 5)
        })
      },
    )
  })
}
