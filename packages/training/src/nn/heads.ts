import type { Tensor } from '@tensorflow/tfjs-core'
import { isHostAccessible } from '../backend/current.ts'
import { scopedTensor, viewOf } from '../backend/host-memory.ts'
import { tf } from '../tfjs/tfjs.ts'

/*
 * Between rows of a sequence, [batch, length, parts x heads x size], and heads, for each part
 * [batch, heads, length, size]. Tensors belong to the scope that is open.
 */

export function splitHeads(rows: Tensor, parts: number, size: number): Tensor[] {
  const [batch, length, channels] = rows.shape as [number, number, number]
  const heads = channels / parts / size
  if (!isHostAccessible()) {
    const split = tf.reshape(rows, [batch, length, parts, heads, size])
    return tf.unstack(tf.transpose(split, [2, 0, 3, 1, 4]))
  }
  return Array.from({ length: parts }, (_, part) =>
    scopedTensor([batch, heads, length, size], (out) => {
      const from = viewOf(rows)
      eachRun({ batch, heads, length, size }, parts, part, (inRows, inHeads) => {
        for (let i = 0; i < size; i++) out[inHeads + i] = from[inRows + i]!
      })
    }),
  )
}

export function joinHeads(all: readonly Tensor[]): Tensor {
  const parts = all.length
  const [batch, heads, length, size] = all[0]!.shape as [number, number, number, number]
  const shape = [batch, length, parts * heads * size]
  if (!isHostAccessible()) {
    return tf.reshape(tf.transpose(tf.stack([...all]), [1, 3, 0, 2, 4]), shape)
  }
  return scopedTensor(shape, (out) => {
    all.forEach((each, part) => {
      const from = viewOf(each)
      eachRun({ batch, heads, length, size }, parts, part, (inRows, inHeads) => {
        for (let i = 0; i < size; i++) out[inRows + i] = from[inHeads + i]!
      })
    })
  })
}

interface Extents {
  readonly batch: number
  readonly heads: number
  readonly length: number
  readonly size: number
}

/** Where the numbers of one head at one position begin, in both forms. */
function eachRun(
  { batch, heads, length, size }: Extents,
  parts: number,
  part: number,
  visit: (inRows: number, inHeads: number) => void,
): void {
  for (let b = 0; b < batch; b++) {
    for (let head = 0; head < heads; head++) {
      for (let at = 0; at < length; at++) {
        const inRows = (((b * length + at) * parts + part) * heads + head) * size
        visit(inRows, ((b * heads + head) * length + at) * size)
      }
    }
  }
}
