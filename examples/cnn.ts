// A convolutional network that reads MNIST's digits, data parallel: every rank has the whole network and
// a share of each batch.
//
//   npx tsrun --nproc 4 examples/cnn.ts
//   npx tsrun --nproc 4 examples/cnn.ts --channels 32 --epochs 1
//   node --import tsx examples/cnn.ts                  (the same script in one process)
//
// Two convolutions, each with max pooling, then a hidden layer; dropout before both linear layers. What
// is dropped depends on the step and the place in the batch, so all numbers of ranks train alike.

import { destroyProcessGroup } from '@tsrun/distributed'
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

await training.loadBackend()

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
const train = training.mnist({ split: 'train' })
const test = training.mnist({ split: 'test' })
const steps = Math.ceil(Math.min(flags.images, train.size) / batch)
const total = epochs * steps
const run = await training.trainer(model, {
  optimizer: new training.Adam(),
  learningRate: training.warmupCosine({ peak: flags.lr, warmup: Math.min(50, total), total }),
})
const { share } = run

const progress = new Progress()
let [accuracy, speed, loss] = [0, 0, 0]
for (let epoch = 0; epoch < epochs; epoch++) {
  const begin = performance.now()
  let [sum, seen] = [0, 0]
  for (const examples of training.batches(train, { batch, seed, epoch, share })) {
    if (run.steps === (epoch + 1) * steps) break
    const step = await run.step(examples)
    sum += step.loss * step.examples
    seen += step.examples
    speed = seen / ((performance.now() - begin) / 1000)
    if (run.rank === 0) {
      progress.update(() => `step ${run.steps}/${total}  ${grouped(speed)} images/s`)
    }
  }
  loss = sum / seen
  const evaluation = training.batches(test, { batch: 1000, shuffle: false, share })
  ;({ accuracy } = await run.evaluate(evaluation))
  if (run.rank === 0) {
    progress.log(
      `epoch ${epoch + 1}/${epochs}  loss ${loss.toFixed(4)}  ` +
        `test accuracy ${percent(accuracy, 2)}  ${grouped(speed)} images/s`,
    )
  }
}
if (run.rank === 0) printResult({ ranks: share[1], loss, accuracy, imagesPerSecond: speed })
run.dispose()
await destroyProcessGroup()
