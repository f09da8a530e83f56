import { refuseUnknown, tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { checkSeed } from '../arguments.ts'
import { tf } from '../tfjs/tfjs.ts'
import { generator } from '../random/generator.ts'
import { checkCount } from './epoch-order.ts'
import { checkShare, endsOfShare, type Share } from './share.ts'

/** A long row of tokens. */
export interface Text {
  readonly tokens: Uint8Array
  /** Number of different tokens there may be. */
  readonly vocabulary: number
}

export interface TextOptions {
  /** Sequences a batch, over all ranks. */
  readonly batch: number
  /** Tokens of a sequence. */
  readonly block: number
  /**
   * Number `index` of `count` equal parts of the batch: for ranks that share it, by their data parallel
   * coordinate. Default [0, 1].
   */
  readonly share?: Share
  /** Which positions of each sequence; default all. Context parallel ranks have some of them. */
  readonly positions?: Int32Array
}

const KNOWN = Object.keys({
  batch: true,
  block: true,
  share: true,
  positions: true,
  // which only batches from anywhere need, and which those who evaluate too may have among theirs
  seed: true,
} satisfies Record<keyof TextOptions | 'seed', true>)

/** Sequences and, for each of their tokens, the one that follows. */
export interface TextBatch {
  readonly size: number
  /** Where each sequence begins in the text. */
  readonly starts: Int32Array
  /** Makes int32 [size, positions], the caller's to dispose. */
  readonly inputs: () => Tensor
  /** The same, one token later. */
  readonly labels: () => Tensor
}

/**
 * Batch number `step`, sequences from anywhere in the text. Which these are depends on `seed` and
 * `step` alone: all ranks draw the same batch and take their share, however many they are, and a run
 * that is continued needs no more than the step.
 *
 * @throws ERR_TSR_ARGUMENT
 *
 * @example
 * const { inputs, labels } = textBatch(mobyDick({ split: 'train' }), step, { batch: 16, block: 64 })
 */
export function textBatch(
  text: Text,
  step: number,
  options: TextOptions & { readonly seed?: number },
): TextBatch {
  refuseUnknown(options, KNOWN)
  const { batch, block, seed = 0 } = checkOptions(text, options)
  checkCount('step', step, 0)
  checkSeed(seed)
  const next = generator(`text batch ${String(step)}`, seed)
  const room = text.tokens.length - block
  // the bias of the remainder is below length / 2^32
  return cutOut(
    text,
    Int32Array.from({ length: batch }, () => next() % room),
    options,
  )
}

/**
 * The whole text in batches of sequences, each once, without what is left over at the end: for
 * evaluation. The parts of a last batch may differ by one sequence, or be empty.
 *
 * @param limit - of the batches; default all
 * @throws ERR_TSR_ARGUMENT
 */
export function* textBatches(
  text: Text,
  options: TextOptions,
  limit = Infinity,
): Generator<TextBatch> {
  refuseUnknown(options, KNOWN)
  const { batch, block } = checkOptions(text, options)
  if (!(limit >= 0)) {
    const expected = 'a number of batches, 0 or more'
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'limit', value: limit, expected })
  }
  const sequences = Math.floor((text.tokens.length - 1) / block)
  for (let i = 0; i < Math.min(limit, Math.ceil(sequences / batch)); i++) {
    const length = Math.min(batch, sequences - i * batch)
    yield cutOut(
      text,
      Int32Array.from({ length }, (_, k) => (i * batch + k) * block),
      options,
    )
  }
}

function cutOut({ tokens }: Text, all: Int32Array, options: TextOptions): TextBatch {
  const { block, share = [0, 1] } = options
  const positions = options.positions ?? Int32Array.from({ length: block }, (_, i) => i)
  const starts = all.subarray(...endsOfShare(share, all.length))
  const size = starts.length
  const width = positions.length
  const make = (shift: number) => (): Tensor => {
    const values = new Int32Array(size * width)
    starts.forEach((start, row) => {
      positions.forEach((position, i) => {
        values[row * width + i] = tokens[start + position + shift]!
      })
    })
    return tf.keep(tf.tensor2d(values, [size, width], 'int32'))
  }
  return { size, starts, inputs: make(0), labels: make(1) }
}

function checkOptions<Options extends TextOptions>({ tokens }: Text, options: Options): Options {
  const { batch, block, share = [0, 1], positions } = options
  const refuse = (name: string, value: string | number, expected: string) =>
    tsrError('ERR_TSR_ARGUMENT', { name, value, expected })
  checkCount('batch', batch, 1)
  checkCount('block', block, 1)
  if (block >= tokens.length) {
    throw refuse('block', block, `less than the ${String(tokens.length)} tokens of the text`)
  }
  checkShare('share', share)
  const outside = positions?.find((position) => !(position >= 0 && position < block))
  if (outside !== undefined) throw refuse('positions', outside, `0 to ${String(block - 1)}`)
  return options
}
