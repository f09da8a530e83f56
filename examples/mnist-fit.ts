// Data parallel training of a tf.layers model, with its usual `compile` and `fit`.
//
//   npx tsrun --nproc 2 examples/mnist-fit.ts
//   npx tsrun --nproc 4 examples/mnist-fit.ts --epochs 3 --batch 512
//   node --import tsx examples/mnist-fit.ts        (the same script in one process)
//
// Two things differ from a script for one process: the optimizer is wrapped, and each rank fits a part of
// the images. All ranks have the same number of images, so the mean of their gradients is that of the
// whole batch. After each step, the weights of all ranks are bitwise identical.
//
// Read: docs/data-parallel.md#fit-of-a-tflayers-model

import { createHash } from 'node:crypto'
import * as tfl from '@tensorflow/tfjs-layers'
import { DistributedOptimizer } from '@tsrun/layers'
import { batches, mnist, tf } from '@tsrun/training'
import type { Examples, Tensor } from '@tsrun/training'
import { count, integer, jobFlags, positive, readFlags } from './lib/flags.ts'
import { startJob } from './lib/job.ts'
import { grouped, percent, printResult } from './lib/output.ts'

const flags = readFlags({
  epochs: count(1),
  batch: count(128),
  images: count(60_000),
  lr: positive(0.1),
  seed: integer(0),
  ...jobFlags(),
})
const group = await startJob(flags)
const { rank, size } = group

const layer = (units: number, activation: 'relu' | 'softmax', more: number) =>
  tfl.layers.dense({
    units,
    activation,
    // Every rank starts with different weights; the first step replaces them by those of rank 0.
    kernelInitializer: tfl.initializers.heUniform({ seed: flags.seed + 10 * rank + more }),
    ...(more === 0 && { inputShape: [784] }),
  })
const model = tfl.sequential({ layers: [layer(128, 'relu', 0), layer(10, 'softmax', 1)] })
model.compile({
  optimizer: new DistributedOptimizer(tf.train.sgd(flags.lr), group),
  loss: 'sparseCategoricalCrossentropy',
  metrics: ['accuracy'],
})

/** This rank's part of so many images, the same number on all ranks, and their labels. */
function part(dataset: Examples, images: number): [x: Tensor, y: Tensor] {
  const batch = images - (images % size)
  const [mine] = batches(dataset, { batch, seed: flags.seed, share: [rank, size] })
  // This loss takes labels as float32.
  return [mine!.inputs(), tf.cast(mine!.labels(), 'float32')]
}

const train = mnist({ split: 'train' })
const [x, y] = part(train, Math.min(flags.images, train.size))
const options = { batchSize: Math.ceil(flags.batch / size), epochs: flags.epochs, verbose: 0 }
const begin = performance.now()
const { history } = await model.fit(x, y, options)
const seconds = (performance.now() - begin) / 1000

const test = mnist({ split: 'test' })
const [, right] = model.evaluate(...part(test, test.size), { batchSize: 1000 }) as Tensor[]
const means = Float64Array.of(history['loss']!.at(-1) as number, right!.dataSync()[0]!)
await group.allReduce(means, { op: 'avg' })
const [loss, accuracy] = means as unknown as [number, number]

const hash = createHash('sha256')
for (const weight of model.getWeights()) hash.update(weight.dataSync())
const equalWeights = new Set(await group.allGatherObject(hash.digest('hex'))).size === 1
if (rank === 0) {
  const imagesPerSecond = (x.shape[0] * size * flags.epochs) / seconds
  console.log(
    `loss ${loss.toFixed(4)}  test accuracy ${percent(accuracy, 2)}  ` +
      `${grouped(imagesPerSecond)} images/s  weights ${equalWeights ? 'equal' : 'DIFFER'} on all ranks`,
  )
  printResult({ ranks: size, accuracy, loss, equalWeights, imagesPerSecond })
}
await group.destroy()
