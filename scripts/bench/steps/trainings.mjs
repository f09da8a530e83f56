// The models, optimizers and data of the workloads that train.
import { gpt } from '@tsrun/models'
import {
  Adam,
  AdamW,
  Conv2d,
  Flatten,
  Linear,
  MaxPool2d,
  Sequential,
  SGD,
  ShardedMLP,
  tf,
} from '@tsrun/training'
import { batchOf, sizesOf } from '../ranks.mjs'

/** @typedef {import('./workloads.mjs').Workload} Workload */

/**
 * What a kind of workload trains.
 *
 * @typedef {object} Training
 * @property {import('@tsrun/training').Module} model
 * @property {import('@tsrun/training').Optimizer} optimizer
 * @property {import('@tsrun/training').Tensor} x
 * @property {import('@tsrun/training').Tensor} labels
 */

/** @type {Readonly<Record<'mlp' | 'gpt' | 'cnn', (workload: Workload) => Training>>} */
export const trainings = {
  /** Linear layers with ReLUs between, and plain SGD. */
  mlp: (workload) => ({
    model: new ShardedMLP(sizesOf(workload)),
    optimizer: new SGD({ learningRate: 1e-3 }),
    ...batchOf(workload, workload.batch),
  }),
  gpt({ layers, width, batch, heads = 1, block = 1, vocabulary = 1, tied = false }) {
    const tokens = (/** @type {number} */ seed) =>
      tf.randomUniform([batch, block], 0, vocabulary, 'int32', seed)
    return {
      model: gpt({ layers, width, heads, block, vocabulary, tied }).build(),
      optimizer: new AdamW({ learningRate: 1e-3 }),
      x: tokens(1),
      labels: tokens(2),
    }
  },
  /** Two convolutions with max pooling and a hidden layer, on images of 28 x 28. */
  cnn({ width, batch }) {
    const same = /** @type {const} */ ({ kernel: 3, padding: 'same', activation: 'relu' })
    return {
      model: new Sequential({
        conv1: new Conv2d({ name: 'conv1', inputs: 1, outputs: width, ...same }),
        pool1: new MaxPool2d({ size: 2 }),
        conv2: new Conv2d({ name: 'conv2', inputs: width, outputs: 2 * width, ...same }),
        pool2: new MaxPool2d({ size: 2 }),
        flat: new Flatten(),
        fc1: new Linear({ name: 'fc1', inputs: 98 * width, outputs: 128, activation: 'relu' }),
        fc2: new Linear({ name: 'fc2', inputs: 128, outputs: 10 }),
      }),
      optimizer: new Adam({ learningRate: 1e-3 }),
      x: tf.randomUniform([batch, 28, 28, 1], 0, 1, 'float32', 1),
      labels: tf.randomUniform([batch], 0, 10, 'int32', 2),
    }
  },
}
