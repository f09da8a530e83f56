// Step 1: the whole network in one process.
//
//   npx tsx examples/01-monolith.ts [--epochs 3] [--images 60000] [--batch 128] [--lr 0.001] [--seed 0]
//
// 16 linear layers learn to read digits. Nothing is parallel here. All later steps have to reproduce its
// results, number by number, and to be faster. Note the three parts of a training step, because a
// pipeline will separate them:
//
//   forward    activations pass through the layers to the loss; each layer keeps its input
//   backward   the gradient passes back through the layers, and each computes those of its parameters
//   update     the optimizer moves the parameters against their gradients

import {
  Adam,
  batches,
  countCorrect,
  crossEntropy,
  loadBackend,
  mnist,
  recordLoss,
  recordModule,
  ShardedMLP,
  sumInto,
  subset,
  tf,
  type ExampleBatch,
  type Tensor,
} from '@tsrun/training'
import { count, integer, positive, readFlags } from './lib/flags.ts'

const flags = readFlags({
  epochs: count(3),
  images: count(60_000),
  batch: count(128),
  lr: positive(0.001),
  seed: integer(0),
})
const { epochs, images, batch, seed, lr: learningRate } = flags

await loadBackend()
const model = new ShardedMLP({ layers: 16, seed })
const optimizer = new Adam({ learningRate })
const all = mnist({ split: 'train' })
const train = subset(
  all,
  Array.from({ length: Math.min(all.size, images) }, (_, i) => i),
)
const test = mnist({ split: 'test' })

const started = performance.now()
let steps = 0
let accuracy = 0
for (let epoch = 0; epoch < epochs; epoch++) {
  const order = batches(train, { batch, seed, epoch })
  for (const examples of order) {
    // The learning rate falls linearly to zero: large steps first, small ones to settle.
    optimizer.learningRate = learningRate * (1 - steps / (epochs * order.length))
    const loss = trainStep(examples)
    steps += 1
    if (steps % 100 === 0) report(epoch, loss, epochs * order.length)
  }
  accuracy = evaluate()
  console.log(
    `epoch ${epoch + 1} of ${epochs}: ${(100 * accuracy).toFixed(2)} % of the test images`,
  )
}
const seconds = (performance.now() - started) / 1000
console.log(
  `result ${JSON.stringify({ accuracy, seconds: round(seconds), msPerStep: round((1000 * seconds) / steps) })}`,
)

/** Forward, backward, update. Tensors are not garbage-collected, so this function disposes its own. */
function trainStep(examples: ExampleBatch): number {
  const [inputs, labels, one] = [examples.inputs(), examples.labels(), tf.scalar(1)]

  const outputs = recordModule(model, inputs, { needsInputGradient: false })
  const loss = recordLoss(crossEntropy, outputs.value, labels)
  const [value] = loss.value.dataSync()

  // The backward pass starts from d loss / d loss = 1, and goes through the loss, then the layers.
  const gradients = new Map<string, Tensor>()
  const outputGradient = loss.backward(one, () => undefined)!
  outputs.backward(outputGradient, sumInto(gradients))

  optimizer.step(model.parameters, gradients)

  for (const done of [outputs, loss, inputs, labels, one, outputGradient]) done.dispose()
  return value!
}

/** The share of test images that the network reads correctly. */
function evaluate(): number {
  let correct = 0
  for (const examples of batches(test, { batch: 1000, shuffle: false })) {
    tf.tidy(() => {
      const [inputs, labels] = [examples.inputs(), examples.labels()]
      correct += countCorrect(model.forward(inputs), labels)
      tf.dispose([inputs, labels])
    })
  }
  return correct / test.size
}

function report(epoch: number, loss: number, total: number): void {
  const elapsed = (performance.now() - started) / 1000
  const left = (elapsed / steps) * (total - steps)
  const speed = (steps * batch) / elapsed
  console.log(
    `epoch ${epoch + 1}  step ${steps}/${total}  loss ${loss.toFixed(4)}  ` +
      `${speed.toFixed(0)} images/s  ${left.toFixed(0)} s left`,
  )
}

function round(value: number): number {
  return Math.round(value * 100) / 100
}
