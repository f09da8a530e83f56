// A convolutional network that reads MNIST's digits, data parallel: every rank has the whole network and
// a share of each batch.
//
//   npx tsrun --nproc auto examples/cnn.ts
//   npx tsrun --nproc auto examples/cnn.ts --channels 32 --epochs 2
//   node --import tsx examples/cnn.ts                  (the same script in one process)
//
// Two convolutions, each with max pooling, then a hidden layer; dropout before both linear layers. What
// is dropped depends on the step and the place in the batch, so all numbers of ranks train alike.
//
// Read: docs/models.md

import * as training from '@tsrun/training'
import { count, integer, jobFlags, positive, readFlags } from './lib/flags.ts'
import { startJob } from './lib/job.ts'
import { printResult } from './lib/output.ts'
import { Speed } from './lib/speed.ts'

const { Conv2d, Dropout, Flatten, Linear, MaxPool2d, moduleOf, Sequential, tf } = training
const flags = readFlags({
  epochs: count(1),
  batch: count(64),
  images: count(60_000),
  channels: count(16),
  seed: integer(0),
  lr: positive(0.008),
  ...jobFlags(),
})
const { batch, channels, epochs, seed } = flags

const group = await startJob(flags)

const same = { kernel: 3, padding: 'same', activation: 'relu', seed } as const
const model = new Sequential({
  image: moduleOf({}, (x) => tf.reshape(x, [-1, 28, 28, 1])),
  conv1: new Conv2d({ name: 'conv1', inputs: 1, outputs: channels, ...same }),
  pool1: new MaxPool2d({ size: 2 }),
  conv2: new Conv2d({ name: 'conv2', inputs: channels, outputs: 2 * channels, ...same }),
  pool2: new MaxPool2d({ size: 2 }),
  flat: new Flatten(),
  drop1: new Dropout({ name: 'drop1', rate: 0.1, seed }),
  fc1: new Linear({ name: 'fc1', inputs: 98 * channels, outputs: 128, activation: 'relu', seed }),
  drop2: new Dropout({ name: 'drop2', rate: 0.1, seed }),
  fc2: new Linear({ name: 'fc2', inputs: 128, outputs: 10, seed }),
})
const train = training.mnist({ split: 'train' })
const steps = Math.ceil(Math.min(flags.images, train.size) / batch)
const total = epochs * steps
const run = await training.trainer(model, {
  mesh: group,
  optimizer: new training.Adam(),
  // The rate rises for the first fifth of the steps and then falls: so one epoch is enough.
  learningRate: training.warmupCosine({ peak: flags.lr, warmup: Math.ceil(total / 5), total }),
})
const speed = new Speed()
const { losses, evaluations } = await run.fit(train, {
  ...{ batch, seed, steps: total },
  evaluate: { data: training.mnist({ split: 'test' }), every: steps },
  callbacks: [speed],
})

if (run.rank === 0) {
  const loss = losses.slice(-steps).reduce((sum, each) => sum + each, 0) / steps
  const { accuracy } = evaluations.at(-1)!
  printResult({ ranks: group.size, loss, accuracy, imagesPerSecond: speed.examplesPerSecond })
}
run.dispose()
await group.destroy()
