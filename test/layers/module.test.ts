import * as tfjs from '@tensorflow/tfjs'
import { runWorld } from '@tsrun/distributed'
import { loadBackend, meanSquaredError, SGD, trainer, type AnyBatch } from '@tsrun/training'

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

it('refuses what it would train in another way than the model itself', async () => {
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

it('trains a model of tf.layers on several ranks, and leaves it its weights', async () => {
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
