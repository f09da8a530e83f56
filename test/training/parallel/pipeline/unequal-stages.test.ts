import { runWorld } from '@tsrun/distributed'
import { loadBackend, pipeline, shardedMLP, tf, type PipelineOptions } from '@tsrun/training'
import { failure } from '../support/failure.ts'
import { exampleBatch, excess, values, type Values } from '../support/reference.ts'

const model = shardedMLP({ layers: 6, inputs: 8, hidden: 10, outputs: 3 })
const batch = { size: 8, ...exampleBatch(0, 8, 8, 3) }

beforeAll(async () => {
  await loadBackend('wasm')
})

async function train(size: number, options: PipelineOptions) {
  const ranks = await runWorld({ size }, async (group) => {
    const pipe = pipeline(model, group, options)
    const { gradients } = await pipe.forwardBackward(batch)
    const taken = values(gradients)
    tf.dispose([...gradients.values()])
    pipe.dispose()
    return { taken, layers: pipe.chunks.map(({ from, to }) => to - from) }
  })
  return {
    gradients: Object.assign({}, ...ranks.map(({ taken }) => taken)) as Values,
    layers: ranks.map(({ layers }) => layers),
  }
}

describe('the split of a pipeline', () => {
  it('may be unequal, with the gradients of a single process', async () => {
    const wanted = await train(1, {})
    const given = await train(3, { split: [1, 4, 1] })
    expect(given.layers).toEqual([[1], [4], [1]])
    expect(excess(given.gradients, wanted.gradients)).toBeLessThanOrEqual(0)
    const weighed = await train(2, { split: { costs: [9, 1, 1, 1, 1, 1] } })
    expect(weighed.layers).toEqual([[1], [5]])
    expect(excess(weighed.gradients, wanted.gradients)).toBeLessThanOrEqual(0)
  })

  it('has a number of layers for each stage if ranks have several', async () => {
    const { layers } = await train(2, { schedule: 'interleaved', split: [1, 1, 3, 1] })
    expect(layers).toEqual([
      [1, 3],
      [1, 1],
    ])
  })

  it('is refused if it does not fit', async () => {
    for (const split of [[6], [3, 2], [0, 6], [1.5, 4.5], [3, 3, 0]]) {
      await expect(train(2, { split })).rejects.toEqual(
        failure('ERR_TSR_ARGUMENT', /2 numbers of layers from 1, 6 together/),
      )
    }
  })
})
