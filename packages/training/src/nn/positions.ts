import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../backend/tensorflow.ts'
import { Embedding, lookUp } from './embedding.ts'

/** Which positions of the text the rows of a sequence of `length` are. */
export type Positions = (length: number) => Int32Array

/** Adds what it has learned about each position to a sequence. */
export class PositionEmbedding extends Embedding {
  /** Others where a rank has only a part of each sequence. */
  positions: Positions = (length) => Int32Array.from({ length }, (_, position) => position)

  /** @param x - [batch, length, width] */
  override forward(x: Tensor): Tensor {
    return tf.add(x, this.rowsFor(x.shape[1]!))
  }

  /**
   * @returns [length, width]
   * @throws ERR_TSR_ARGUMENT when the sequence is longer than the table
   */
  rowsFor(length: number, table: Tensor = this.weight.value): Tensor {
    const positions = this.positions(length)
    const count = this.weight.shape[0]!
    if (positions.some((position) => position >= count)) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: 'a sequence',
        value: `one of ${String(Math.max(...positions) + 1)} positions`,
        expected: `at most ${String(count)}, the block size`,
      })
    }
    return lookUp(table, tf.tensor1d(positions, 'int32'))
  }
}
