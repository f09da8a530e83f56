// A convolutional network that reads MNIST's digits, data parallel: every rank has the whole network and
// a share of each batch.
//
//   npx tsrun --nproc 4 examples/cnn.ts
//   npx tsrun --nproc 4 examples/cnn.ts --channels 32 --epochs 1
//   node --import tsx examples/cnn.ts                  (the same script in one process)
//
// Two convolutions, each with max pooling, then a hidden layer; dropout before both linear layers. What
// is dropped depends on the step and the place in the batch, so all numbers of ranks train alike.

import { initProcessGroup } from '@tsrun/distributed'
import * as training from '@tsrun/training'
import { count, integer, positive, readFlags } from './lib/flags.ts'
import { grouped, percent, printResult, Progress } from './lib/output.ts'

const { Conv2d, Dropout, Flatten, Linear, MaxPool2d, moduleOf, Sequential, tf } = training
const flags = readFlags({
  epochs: count(2),
  batch: count(64),
  images: count(60_000),
  channels: count(16),
  seed: integer(0),
  lr: positive(0.002),
})
const { batch, channels, epochs, seed } = flags

const group = await initProcessGroup()
await training.loadBackend()
const { rank, size } = group

const same = { kernel: 3, padding: 'same', activation: 'relu', seed } as const
const model = new Sequential({
  image: moduleOf({}, (x) => tf.reshape(x, [-1, 28, 28, 1])),
  conv1: new Conv2d({ name: 'conv1', inputs: 1, outputs: channels, ...same }),
  pool1: new MaxPool2d({ size: 2 }),
  conv2: new Conv2d({ name: 'conv2', inputs: channels, outputs: 2 * channels, ...same }),
  pool2: new MaxPool2d({ size: 2 }),
  flat: new Flatten(),
  drop1: new Dropout({ name: 'drop1', rate: 0.25, seed }),
  fc1: new Linear({ name: 'fc1', inputs: 98 * channels, outputs: 128, activation: 'relu', seed }),
  drop2: new Dropout({ name: 'drop2', rate: 0.25, seed }),
  fc2: new Linear({ name: 'fc2', inputs: 128, outputs: 10, seed }),
})
const replica = await training.dataParallel(model, group, { reduction: 'token' })
const optimizer = new training.Adam({ learningRate: flags.lr })
const train = training.mnist({ split: 'train' })
const test = training.mnist({ split: 'test' })
const steps = Math.ceil(Math.min(flags.images, train.size) / batch)
const total = epochs * steps
const warmup = Math.min(50, total)
const rate = training.warmupCosine({ peak: flags.lr, warmup, total })
const one = tf.scalar(1)

/** Computes the loss and the gradients of this rank's share of a batch. Returns the loss. */
function backward({ inputs, labels }: training.ExampleBatch, step: number, row: number): number {
  const [x, y] = [inputs(), labels()]
  const outputs = training.inPass({ training: true, step, row }, () =>
    training.recordModule(model, x, { needsInputGradient: false }),
  )
  const loss = training.recordLoss(training.summedCrossEntropy, outputs.value, y)
  const outputGradient = loss.backward(one, () => undefined)!
  outputs.backward(outputGradient, replica.onGradient)
  const [value] = loss.value.dataSync()
  outputs.dispose()
  loss.dispose()
  tf.dispose([x, y, outputGradient])
  return value!
}

/** The share of the test images that are read correctly. Every rank reads a part of them. */
async function judge(): Promise<number> {
  const right = Float64Array.of(0)
  const parts = training.batches(test, { batch: 1000, shuffle: false, share: [rank, size] })
  for (const { inputs, labels } of parts) {
    tf.tidy(() => (right[0]! += training.countCorrect(model.forward(inputs()), labels())))
  }
  await group.allReduce(right)
  return right[0]! / test.size
}

const progress = new Progress()
let [accuracy, speed, meanLoss] = [0, 0, 0]
for (let epoch = 0; epoch < epochs; epoch++) {
  const begin = performance.now()
  const loss = Float64Array.of(0)
  let step = 0
  for (const examples of training.batches(train, { batch, seed, epoch, share: [rank, size] })) {
    if (step >= steps) break
    // shares of a batch are consecutive
    const row = Math.floor((rank * batch) / size)
    optimizer.learningRate = rate(epoch * steps + step)
    loss[0]! += backward(examples, epoch * steps + step, row)
    optimizer.step(model.parameters, await replica.gradients(examples.size))
    step++
    speed = (step * batch) / ((performance.now() - begin) / 1000)
    if (rank === 0) {
      progress.update(
        () => `epoch ${epoch + 1}/${epochs}  step ${step}/${steps}  ${grouped(speed)} images/s`,
      )
    }
  }
  await group.allReduce(loss)
  meanLoss = loss[0]! / (steps * batch)
  accuracy = await judge()
  if (rank === 0) {
    progress.log(
      `epoch ${epoch + 1}/${epochs}  loss ${meanLoss.toFixed(4)}  ` +
        `test accuracy ${percent(accuracy, 2)}  ${grouped(speed)} images/s`,
    )
  }
}
if (rank === 0) printResult({ ranks: size, loss: meanLoss, accuracy, imagesPerSecond: speed })
replica.dispose()
await group.destroy()
