import { runWorld } from '@tsrun/distributed'
import {
  batches,
  dataParallel,
  loadBackend,
  recordLoss,
  recordModule,
  shardedMLP,
  summedCrossEntropy,
  tf,
  type Examples,
  type Tensor,
} from '@tsrun/training'

beforeAll(async () => {
  await loadBackend('cpu')
})

const dataset: Examples = {
  size: 5,
  fields: {
    inputs: {
      shape: [3],
      dtype: 'float32',
      read: (indices, out) => {
        out.forEach((_, i) => (out[i] = Math.sin(7 * indices[Math.floor(i / 3)]! + i)))
      },
    },
    labels: {
      shape: [],
      dtype: 'int32',
      read: (indices, out) => {
        out.forEach((_, i) => (out[i] = indices[i]! % 2))
      },
    },
  },
}

/** The gradients of the last batch. Its one example is on one rank only. */
async function lastGradients(ranks: number): Promise<Record<string, number[]>[]> {
  return await runWorld({ size: ranks, seed: 1 }, async (group) => {
    const model = shardedMLP({ layers: 2, inputs: 3, hidden: 4, outputs: 2, seed: 3 }).build()
    const options = { reduction: 'token', unused: 'zeros' } as const
    const replica = await dataParallel(model, group, options)
    const share = [group.rank, group.size] as const
    const [, part] = [...batches(dataset, { batch: 4, shuffle: false, share })]
    if (part!.size > 0) {
      const [x, y] = [part!.inputs(), part!.labels()]
      const outputs = recordModule(model, x, { needsInputGradient: false })
      const loss = recordLoss(summedCrossEntropy, outputs.value, y)
      outputs.backward(
        loss.backward(tf.scalar(1), () => undefined)!,
        replica.onGradient,
      )
    }
    const gradients: ReadonlyMap<string, Tensor> = await replica.gradients(part!.size)
    const values = Array.from(gradients, ([name, tensor]) => [name, [...tensor.dataSync()]])
    replica.dispose()
    return Object.fromEntries(values) as Record<string, number[]>
  })
}

it.each([2, 3])(
  'of %d ranks, one without examples runs no pass, and all get the gradient',
  async (ranks) => {
    const [alone] = await lastGradients(1)
    for (const gradients of await lastGradients(ranks)) {
      for (const [name, values] of Object.entries(gradients)) {
        expect(values.some((value) => value !== 0)).toBe(true)
        for (const [i, value] of values.entries()) expect(value).toBeCloseTo(alone![name]![i]!, 6)
      }
    }
  },
)
