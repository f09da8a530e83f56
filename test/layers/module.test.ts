import * as tfjs from '@tensorflow/tfjs'
import { runWorld } from '@tsrun/distributed'
import {
  loadBackend,
  meanSquaredError,
  SGD,
  tf,
  trainer,
  type AnyBatch,
  type Tensor,
} from '@tsrun/training'

beforeAll(() => loadBackend('wasm'))

const FEATURES = 4

function build(): tfjs.Sequential {
  const layer = (units: number, more: object) =>
    tfjs.layers.dense({
      units,
      kernelInitializer: tfjs.initializers.heUniform({ seed: units }),
      ...more,
    })
  return tfjs.sequential({
    layers: [layer(8, { activation: 'relu', inputShape: [FEATURES] }), layer(3, {})],
  })
}

function batchAt(step: number, from: number, to: number): AnyBatch {
  const size = to - from
  return {
    size,
    inputs: Float32Array.from({ length: size * FEATURES }, (_, i) =>
      Math.sin(step + from * FEATURES + i),
    ),
    labels: Int32Array.from({ length: size }, (_, i) => (from + i + step) % 3),
  }
}

describe('random layers of tf.layers', () => {
  const WIDTH = 64
  /** The loss, the sum of the inputs that were kept, and that sum again in the gradient. */
  async function sums(layer: tfjs.layers.Layer, recompute: boolean): Promise<[number, number]> {
    const units = { units: 1, useBias: false, kernelInitializer: 'ones' as const }
    const model = tfjs.sequential({
      layers: [
        tfjs.layers.reshape({ targetShape: [WIDTH], inputShape: [WIDTH] }),
        layer,
        tfjs.layers.dense(units),
      ],
    })
    const run = await trainer(model, {
      ...{ mesh: { dp: 1 }, optimizer: new SGD({ learningRate: 1 }), recompute },
      loss: (y) => tf.mean(y),
    })
    const batch = { size: 2, inputs: () => tf.ones([2, WIDTH]), labels: () => tf.zeros([2]) }
    const { loss } = await run.step(batch)
    run.dispose()
    const [weights] = model.getWeights()
    return [loss, WIDTH - tf.sum(weights as unknown as Tensor).dataSync()[0]!]
  }

  it.each([false, true])('drop the same values in both passes, recompute %s', async (recompute) => {
    const { dropout } = tfjs.layers
    for (const layer of [dropout({ rate: 0.3 }), dropout({ rate: 0.3, seed: 3 })]) {
      const [loss, gradient] = await sums(layer, recompute)
      expect(loss).toBeCloseTo(gradient, 3)
      expect(loss).not.toBe(WIDTH)
    }
  })

  it('drop different values at each time step and at each use of a layer', async () => {
    const { dense, dropout, timeDistributed } = tfjs.layers
    const units = { units: 1, useBias: false, kernelInitializer: 'ones' as const, inputDim: WIDTH }
    const steps = timeDistributed({ layer: dropout({ rate: 0.5 }), inputShape: [6, WIDTH] })
    const model = tfjs.sequential({ layers: [steps, timeDistributed({ layer: dense(units) })] })
    let kept: Float32Array | undefined
    const run = await trainer(model, {
      ...{ mesh: { dp: 1 }, optimizer: new SGD({ learningRate: 1 }) },
      loss: (y) => {
        kept = y.dataSync<'float32'>().slice()
        return tf.mean(y)
      },
    })
    await run.step({ size: 1, inputs: () => tf.ones([1, 6, WIDTH]), labels: () => tf.zeros([1]) })
    run.dispose()
    expect(new Set(kept).size).toBeGreaterThan(2)
  })

  it('refuse recomputation if it would draw different values', async () => {
    const noise = () => tfjs.layers.gaussianNoise({ stddev: 1 })
    const [loss, gradient] = await sums(noise(), false)
    expect(loss).toBeCloseTo(gradient, 3)
    const refused = {
      code: 'ERR_TSR_ARGUMENT',
      message: expect.stringMatching(/GaussianNoise/) as string,
    }
    await expect(sums(noise(), true)).rejects.toMatchObject(refused)
  })
})

it('a trainer refuses a tf.layers model that it would train differently from fit()', async () => {
  const withLast = (more: object) => {
    const model = build()
    model.add(tfjs.layers.dense({ units: 3, ...more }))
    return model
  }
  const probabilities = withLast({ activation: 'softmax' })
  const withSoftmax = build()
  withSoftmax.add(tfjs.layers.softmax())
  const decayed = withLast({ kernelRegularizer: 'l1l2' })
  await runWorld({ size: 1 }, async (mesh) => {
    await expect(trainer(probabilities, { mesh })).rejects.toThrow('one that ends in softmax')
    await expect(trainer(withSoftmax, { mesh })).rejects.toThrow('one that ends in softmax')
    await expect(trainer(decayed, { mesh })).rejects.toThrow('layer 2 has a regularizer')
    const run = await trainer(probabilities, { mesh, loss: meanSquaredError })
    run.dispose()
  })
})

it('a trainer trains a tf.layers model on several ranks, and the model keeps the trained weights', async () => {
  const train = async (ranks: number): Promise<number[]> => {
    const all = await runWorld({ size: ranks }, async (group) => {
      const model = build()
      const first = model.getWeights()[0]!.dataSync().slice()
      const optimizer = new SGD({ learningRate: 0.3, momentum: 0.9 })
      const run = await trainer(model, { mesh: group, optimizer })
      expect(run.parameters).toHaveLength(4)
      const rows = 8 / ranks
      const losses: number[] = []
      for (let step = 0; step < 10; step++) {
        const from = rows * group.rank
        losses.push((await run.step(batchAt(step, from, from + rows))).loss)
      }
      const trained = run.parameters.map(({ value }) => [...value.dataSync()])
      run.dispose()
      expect(model.getWeights().map((weight) => [...weight.dataSync()])).toEqual(trained)
      expect(model.getWeights()[0]!.dataSync()).not.toEqual(first)
      model.predict(tfjs.zeros([1, FEATURES]))
      return losses
    })
    return all[0]!
  }
  const [alone, together] = [await train(1), await train(2)]
  expect(alone.at(-1)).toBeLessThan(alone[0]!)
  together.forEach((loss, step) => {
    expect(Math.abs(loss - alone[step]!)).toBeLessThan(1e-5)
  })
})

it.each([
  { zero: 0, accumulate: 2 },
  { zero: 3, accumulate: 4 },
] as const)('passes without examples leave the moving averages unchanged: %j', async (options) => {
  const layers = [
    tfjs.layers.batchNormalization({ inputShape: [1], momentum: 0.99 }),
    tfjs.layers.dense({ units: 1 }),
  ]
  await runWorld({ size: 1 }, async (mesh) => {
    const optimizer = new SGD({ learningRate: 0.1 })
    const run = await trainer(tfjs.sequential({ layers }), {
      ...{ mesh, optimizer, loss: meanSquaredError },
      ...options,
    })
    await run.step({
      size: 2,
      shape: [1],
      inputs: Float32Array.of(4, 8),
      labels: () => tf.tensor2d([1, 2], [2, 1]),
    })
    const mean = run.buffers.find(({ name }) => name.endsWith('moving_mean'))!
    expect(mean.value.dataSync()[0]).toBeCloseTo(0.99 * 0.01 * 4 + 0.01 * 8, 6)
    await run.gathered(() => {
      run.dispose()
    })
  })
})
