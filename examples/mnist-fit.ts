// Data parallel training of a tf.layers model, with its usual `compile` and `fit`.
//
//   npx tsrun --nproc 2 examples/mnist-fit.ts
//   npx tsrun --nproc 4 examples/mnist-fit.ts --epochs 3 --batch 512
//   node --import tsx examples/mnist-fit.ts        (the same script in one process)
//
// Two things differ from a script for one process: the optimizer is wrapped, and each rank fits a part of
// the images. All ranks have the same number of images, so the mean of their gradients is that of the
// whole batch. After each step, the weights of all ranks are bitwise identical.

import { createHash } from 'node:crypto'
import * as tfjs from '@tensorflow/tfjs'
import { initProcessGroup } from '@tsrun/distributed'
import { DistributedOptimizer, loadBackend, mnist, sampler, tf } from '@tsrun/training'
import type { Dataset } from '@tsrun/training'
import { count, integer, positive, readFlags } from './lib/flags.ts'
import { grouped, percent, printResult } from './lib/output.ts'

const flags = readFlags({
  epochs: count(1),
  batch: count(128),
  images: count(60_000),
  lr: positive(0.1),
  seed: integer(0),
})
const group = await initProcessGroup()
await loadBackend()
const { rank, size } = group

const layer = (units: number, activation: 'relu' | 'softmax', more: number) =>
  tfjs.layers.dense({
    units,
    activation,
    // Every rank starts with different weights; the first step replaces them by those of rank 0.
    kernelInitializer: tfjs.initializers.heUniform({ seed: flags.seed + 10 * rank + more }),
    ...(more === 0 && { inputShape: [784] }),
  })
const model = tfjs.sequential({ layers: [layer(128, 'relu', 0), layer(10, 'softmax', 1)] })
model.compile({
  optimizer: new DistributedOptimizer(tf.train.sgd(flags.lr), group),
  loss: 'sparseCategoricalCrossentropy',
})

/** Some examples in the form that `fit` takes. */
function read(dataset: Dataset, indices: Int32Array): { x: tfjs.Tensor2D; y: tfjs.Tensor1D } {
  const inputs = new Float32Array(indices.length * dataset.features)
  const labels = new Int32Array(indices.length)
  dataset.readInputs(indices, inputs)
  dataset.readLabels(indices, labels)
  const x = tfjs.tensor2d(inputs, [indices.length, dataset.features])
  return { x, y: tfjs.tensor1d(labels, 'float32') }
}

const train = mnist({ split: 'train' })
const examples = Math.min(flags.images, train.size)
const mine = sampler({ examples, rank, ranks: size, seed: flags.seed, dropLast: true })
const { x, y } = read(train, mine.indices)
const options = { batchSize: Math.ceil(flags.batch / size), epochs: flags.epochs, verbose: 0 }
const begin = performance.now()
const { history } = await model.fit(x, y, options)
const seconds = (performance.now() - begin) / 1000
tfjs.dispose([x, y])

/** The share of the test images that are read correctly. Each image is read by one of the ranks. */
async function judge(): Promise<number> {
  const test = mnist({ split: 'test' })
  const part = read(test, sampler({ examples: test.size, rank, ranks: size }).indices)
  const right = tfjs.tidy(() => {
    const digits = tfjs.argMax(model.predict(part.x) as tfjs.Tensor, 1)
    return tfjs.sum(tfjs.equal(digits, part.y)).dataSync()[0]!
  })
  tfjs.dispose([part.x, part.y])
  const total = Float64Array.of(right)
  await group.allReduce(total)
  return total[0]! / test.size
}

const accuracy = await judge()
const hash = createHash('sha256')
for (const weight of model.getWeights()) hash.update(weight.dataSync())
const equalWeights = new Set(await group.allGatherObject(hash.digest('hex'))).size === 1
if (rank === 0) {
  const loss = history['loss']!.at(-1) as number
  const imagesPerSecond = (mine.length * size * flags.epochs) / seconds
  console.log(
    `loss of rank 0 ${loss.toFixed(4)}  test accuracy ${percent(accuracy, 2)}  ` +
      `${grouped(imagesPerSecond)} images/s  weights ${equalWeights ? 'equal' : 'DIFFER'} on all ranks`,
  )
  printResult({ ranks: size, accuracy, loss, equalWeights, imagesPerSecond })
}
await group.destroy()
