/** The program `node probe.js BACKEND URL-OF-TRAINING` trains one step and prints a line of JSON. */

import type { Tensor } from '@tsrun/training'

async function train(name: string, url: string): Promise<object> {
  const training = (await import(url)) as typeof import('@tsrun/training')
  const { tf } = training
  const { device, threads } = await training.loadBackend(name as 'wasm')
  const model = training.shardedMLP({ layers: 2, inputs: 2, hidden: 3, outputs: 2 }).slice(0, 2)
  const before = await Promise.all(model.parameters.map(({ value }) => value.data()))
  const x = tf.tensor2d([
    [1, 2],
    [3, 4],
  ])
  const [product] = await tf.matMul(x, x).data()
  if (product !== 7) throw new Error(`a product of matrices is ${product}, not 7`)
  const recording = training.recordModule(model, x, { needsInputGradient: false })
  const gradients = new Map<string, Tensor>()
  recording.backward(tf.matMul(x, x), training.sumInto(gradients))
  new training.SGD({ learningRate: 0.1 }).step(model.parameters, gradients)
  const after = await Promise.all(model.parameters.map(({ value }) => value.data()))
  const changed = after.flatMap((values, i) =>
    [...values].map((value, j) => value - before[i]![j]!),
  )
  if (!changed.every(Number.isFinite) || changed.every((change) => change === 0)) {
    throw new Error('a training step does not change the parameters as it should')
  }
  return { works: true, version: `TensorFlow.js ${tf.version_core}`, device, threads }
}

const [, , name = 'wasm', url = '@tsrun/training'] = process.argv
const outcome = await train(name, url).catch((error: unknown) => ({
  works: false,
  reason: error instanceof Error ? error.message : String(error),
  missing: false,
}))
process.stdout.write(`\n${JSON.stringify(outcome)}\n`)
