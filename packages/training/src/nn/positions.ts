import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../backend/tfjs.ts'
import { Embedding, lookUp } from './embedding.ts'
import type { Module, Separable } from '../model/module.ts'

/** Which positions of the text the rows of a sequence of `length` are. */
export type Positions = (length: number) => Int32Array

/** Adds what it has learned about each position to a sequence. */
export class PositionEmbedding extends Embedding implements Separable {
  override readonly kind = 'positions'
  /** Others where a rank has only a part of each sequence. */
  positions: Positions = (length) => Int32Array.from({ length }, (_, position) => position)

  /**
   * @param x - [batch, length, width]
   * @throws ERR_TSR_ARGUMENT when the sequence is longer than the table
   */
  override forward(x: Tensor): Tensor {
    return this.forwardWith([this.weight.value], x)
  }

  forwardWith([table]: readonly Tensor[], x: Tensor): Tensor {
    const positions = this.positions(x.shape[1]!)
    const count = this.weight.shape[0]!
    if (positions.some((position) => position >= count)) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: 'a sequence',
        value: `one of ${String(Math.max(...positions) + 1)} positions`,
        expected: `at most ${String(count)}, the block size`,
      })
    }
    return tf.add(x, lookUp(table!, tf.tensor1d(positions, 'int32')))
  }
}

export function hasPositions(module: Module): module is PositionEmbedding {
  return module.kind === 'positions'
}
