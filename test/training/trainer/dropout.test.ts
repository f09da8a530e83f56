import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import {
  columnParallel,
  Dropout,
  Linear,
  loadBackend,
  sequential,
  SGD,
  tf,
  trainer,
  type MeshShape,
  type TrainerOptions,
} from '@tsrun/training'

beforeAll(() => loadBackend('wasm'))

const FEATURES = 6
const EXAMPLES = 8

const recipe = sequential({
  first: (name) => new Linear({ name, inputs: FEATURES, outputs: 10, activation: 'relu' }),
  drop: (name) => new Dropout({ name, rate: 0.4 }),
  second: (name) => new Linear({ name, inputs: 10, outputs: 10, activation: 'relu' }),
  again: (name) => new Dropout({ name, rate: 0.2 }),
  last: (name) => new Linear({ name, inputs: 10, outputs: 3 }),
})

async function lossesOn(shape: MeshShape, options: TrainerOptions = {}): Promise<number[]> {
  const size = Object.values(shape).reduce((all, each) => all * each, 1)
  const ranks = await runWorld({ size, seed: 4 }, async (group) => {
    const mesh = await initDeviceMesh({ dp: 1, shard: 1, pp: 1, cp: 1, tp: 1, ...shape }, group)
    const run = await trainer(recipe, {
      mesh,
      optimizer: new SGD({ learningRate: 0.2 }),
      ...options,
    })
    const [index, count] = run.share
    const rows = EXAMPLES / count
    const losses: number[] = []
    for (let step = 0; step < 6; step++) {
      const inputs = Float32Array.from({ length: rows * FEATURES }, (_, i) =>
        Math.sin(step + index * rows * FEATURES + i),
      )
      const labels = Int32Array.from({ length: rows }, (_, i) => (index * rows + i + step) % 3)
      losses.push((await run.step({ size: rows, inputs, labels })).loss)
    }
    run.dispose()
    return losses
  })
  return ranks[0]!
}

it.each<[string, MeshShape, TrainerOptions]>([
  ['replicas', { dp: 2 }, {}],
  ['accumulation', { dp: 1 }, { accumulate: 4 }],
  ['recomputation', { dp: 1 }, { recompute: true }],
  ['ZeRO 3', { dp: 4 }, { zero: 3 }],
  ['a pipeline', { pp: 2 }, { microbatches: 4 }],
  ['a pipeline that recomputes', { pp: 3 }, { microbatches: 2, recompute: true }],
  ['replicas of a pipeline', { dp: 2, pp: 2 }, { microbatches: 2, schedule: 'gpipe' }],
])('dropout drops the same values as in a single process: %s', async (_, shape, options) => {
  const [alone, together] = [await lossesOn({ dp: 1 }), await lossesOn(shape, options)]
  together.forEach((loss, step) => {
    expect(Math.abs(loss - alone[step]!)).toBeLessThan(1e-5)
  })
  // Otherwise nothing would have been dropped.
  expect(new Set(alone.map((loss) => loss.toFixed(6))).size).toBe(alone.length)
})

describe('dropout in a trainer', () => {
  const optimizer = new SGD({ learningRate: 0.1 })
  const batchOf = (size: number) => ({
    size,
    inputs: () => tf.keep(tf.ones([size, FEATURES])),
    labels: () => tf.keep(tf.zeros([size], 'int32')),
  })

  it('does nothing in an evaluation, also in sharded layers', async () => {
    const plan = { first: columnParallel({ gather: 'replicated' }) }
    const losses = async (shape: MeshShape, options: TrainerOptions) => {
      const size = shape.tp ?? 1
      return await runWorld({ size, seed: 4 }, async (group) => {
        const mesh = await initDeviceMesh({ dp: 1, tp: size }, group)
        const run = await trainer(recipe, { mesh, optimizer, ...options })
        return (await run.evaluate(batchOf(4))).loss
      })
    }
    const [wanted] = await losses({}, {})
    for (const loss of await losses({ tp: 2 }, { plan })) {
      expect(Math.abs(loss - wanted!)).toBeLessThan(1e-5)
    }
  })

  it('lets a replica without examples take part in sharded passes', async () => {
    const losses = await runWorld({ size: 3, seed: 4 }, async (group) => {
      const run = await trainer(recipe, { mesh: group, optimizer, zero: 3 })
      return (await run.step(batchOf(group.rank === 2 ? 0 : 2))).loss
    })
    expect(losses).toEqual([losses[0], losses[0], losses[0]])
  })
})
