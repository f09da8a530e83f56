import { tsrError } from '@tsrun/core'
import type { ProcessGroup, Work } from '@tsrun/distributed'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { lend } from '../lent-buffers.ts'

/*
 * Collectives on float32 tensors, as what is done with arrays: the passes that block and those that
 * are awaited share it (transfer.ts).
 */

/** One call of a collective, before it starts. */
export interface Transfer {
  /** Takes the values of the tensor. */
  readonly input: Float32Array
  /** @param label - names the operation in errors and reports */
  readonly start: (label: string) => Work
  /** The values of the result, once the work is done and until the buffers are freed. */
  readonly output: () => Float32Array
  /** Of the result. */
  readonly shape: readonly number[]
  /** Lent by the group. */
  readonly buffers: readonly Float32Array[]
}

/** @param shape - of the tensor, the same on all ranks */
export type Collective = (shape: readonly number[], group: ProcessGroup) => Transfer

/** The sum of a tensor over the ranks, of its shape. */
export const sum: Collective = (shape, group) => {
  const buffers = lend(group, [sizeOf(shape)])
  const [input] = buffers as [Float32Array]
  return {
    input,
    start: (label) => group.allReduce(input, { label }),
    output: () => input,
    shape,
    buffers,
  }
}

/** [..., columns] of each rank side by side: [..., size * columns], in the order of the ranks. */
export const gatherColumns: Collective = (shape, group) => {
  const { size } = group
  const { rows, columns } = matrixOf(shape)
  const buffers = lend(group, [rows * columns, rows * columns * size])
  const [input, all] = buffers as [Float32Array, Float32Array]
  return {
    input,
    start: (label) => group.allGather(all, input, { label }),
    output: () => {
      const whole = new Float32Array(all.length)
      interleave(whole, all, { rows, columns, size }, 'whole')
      return whole
    },
    shape: [...shape.slice(0, -1), columns * size],
    buffers,
  }
}

/** This rank's part of the columns of [..., columns], summed over the ranks: [..., columns / size]. */
export const reduceScatterColumns: Collective = (shape, group) => {
  const { size } = group
  const { rows, columns: all } = matrixOf(shape)
  const columns = all / size
  const buffers = lend(group, [rows * all, rows * columns])
  const [slices, output] = buffers as [Float32Array, Float32Array]
  const input = new Float32Array(rows * all)
  return {
    input,
    start: (label) => {
      interleave(input, slices, { rows, columns, size }, 'slices')
      return group.reduceScatter(output, slices, { label })
    },
    output: () => output,
    shape: [...shape.slice(0, -1), columns],
    buffers,
  }
}

/** The parts of each sequence [batch, length, width] of all ranks, one behind the other. */
export const gatherPositions: Collective = ([batch, length, width], group) => ({
  ...gatherColumns([batch!, length! * width!], group),
  shape: [batch!, length! * group.size, width!],
})

/**
 * This rank's part of each sequence [batch, length, width], summed over the ranks.
 *
 * @throws ERR_TSR_ARGUMENT when the length does not divide
 */
export const reduceScatterPositions: Collective = ([batch, length, width], group) => {
  const { size } = group
  if (length! % size !== 0) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'the length of a sequence',
      value: length!,
      expected: `a multiple of the ${String(size)} ranks that share it`,
    })
  }
  return {
    ...reduceScatterColumns([batch!, length! * width!], group),
    shape: [batch!, length! / size, width!],
  }
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

function matrixOf(shape: readonly number[]): { rows: number; columns: number } {
  return { rows: sizeOf(shape.slice(0, -1)), columns: shape.at(-1)! }
}
