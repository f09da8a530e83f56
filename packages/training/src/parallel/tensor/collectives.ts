import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom, writeTo } from '../../backend/host-memory.ts'
import { blockingBackend } from './blocking.ts'

/*
 * Collectives on tensors that block: inside a forward or a backward pass nothing can be awaited.
 * Tensors of float32; a result belongs to
 * the pass that is under way, as those of other operations do.
 */

/** An all-reduce under way. */
export interface PendingSum {
  /** Waits for the sum over all ranks, of the shape of the tensor. */
  finish(): Tensor
}

/** Starts to sum a tensor over the ranks; it can be disposed at once. */
export function startSum(x: Tensor, group: ProcessGroup): PendingSum {
  blockingBackend()
  const buffer = group.alloc('float32', x.size)
  void writeTo(x, buffer)
  const { shape } = x
  const work: Work = group.allReduce(buffer, { label: 'tensor parallel sum' })
  return {
    finish: () => {
      work.wait()
      const sum = scopedTensor(buffer, shape)
      group.free(buffer)
      return sum
    },
  }
}

/** [..., columns] of each rank side by side: [..., size * columns], in the order of the ranks. */
export function gatherColumns(x: Tensor, group: ProcessGroup): Tensor {
  blockingBackend()
  const { size } = group
  const { rows, columns, shape } = matrixOf(x)
  const own = group.alloc('float32', x.size)
  const all = group.alloc('float32', x.size * size)
  void writeTo(x, own)
  group.allGatherSync(all, own, { label: 'tensor parallel gather' })
  const whole = new Float32Array(x.size * size)
  interleave(whole, all, { rows, columns, size }, 'whole')
  group.free(own)
  group.free(all)
  return scopedTensor(whole, [...shape.slice(0, -1), columns * size])
}

/** This rank's part of the columns of [..., columns], summed over the ranks: [..., columns / size]. */
export function reduceScatterColumns(x: Tensor, group: ProcessGroup): Tensor {
  blockingBackend()
  const { size } = group
  const { rows, columns: all, shape } = matrixOf(x)
  const columns = all / size
  const whole = new Float32Array(x.size)
  void writeTo(x, whole)
  const input = group.alloc('float32', x.size)
  const output = group.alloc('float32', x.size / size)
  interleave(whole, input, { rows, columns, size }, 'slices')
  group.reduceScatterSync(output, input, { label: 'tensor parallel reduce-scatter' })
  const part = scopedTensor(output, [...shape.slice(0, -1), columns])
  group.free(input)
  group.free(output)
  return part
}

function scopedTensor(values: Float32Array, shape: readonly number[]): Tensor {
  const tensor = tensorFrom(values, shape)
  tensor.kept = false
  return tensor
}

interface Layout {
  readonly rows: number
  /** Of one rank. */
  readonly columns: number
  readonly size: number
}

/** Between rows of all ranks' columns and one block [rows, columns] a rank. */
function interleave(
  whole: Float32Array,
  slices: Float32Array,
  { rows, columns, size }: Layout,
  to: 'whole' | 'slices',
): void {
  for (let rank = 0; rank < size; rank++) {
    for (let row = 0; row < rows; row++) {
      const inWhole = (row * size + rank) * columns
      const inSlices = (rank * rows + row) * columns
      for (let i = 0; i < columns; i++) {
        if (to === 'whole') whole[inWhole + i] = slices[inSlices + i]!
        else slices[inSlices + i] = whole[inWhole + i]!
      }
    }
  }
}

function matrixOf({ shape, size }: Tensor): { rows: number; columns: number; shape: number[] } {
  const columns = shape.at(-1)!
  return { rows: size / columns, columns, shape }
}
