import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { scopedTensorFrom, writeTo } from '../../backend/host-memory.ts'
import { blockingBackend } from '../blocking.ts'
import { freeAfter, withBuffers } from '../lent-buffers.ts'

/*
 * Collectives on tensors that block: inside a forward or a backward pass nothing can be awaited.
 * Tensors of float32; a result belongs to the pass that is under way, as those of other operations
 * do. Labels name the operation in errors and reports.
 */

/** The sum of a tensor over the ranks, of its shape. */
export function sum(x: Tensor, group: ProcessGroup, label: string): Tensor {
  return sumWhile(x, group, label, () => undefined).sum
}

/** The same, with what `compute` makes while the numbers travel. */
export function sumWhile<T>(
  x: Tensor,
  group: ProcessGroup,
  label: string,
  compute: () => T,
): { readonly sum: Tensor; readonly result: T } {
  blockingBackend()
  const { shape } = x
  const buffer = group.alloc('float32', x.size)
  let work: Work | undefined
  try {
    void writeTo(x, buffer)
    work = group.allReduce(buffer, { label })
    const result = compute()
    work.wait()
    return { sum: scopedTensorFrom(buffer, shape), result }
  } finally {
    freeAfter(work, group, buffer)
  }
}

/** [..., columns] of each rank side by side: [..., size * columns], in the order of the ranks. */
export function gatherColumns(x: Tensor, group: ProcessGroup, label: string): Tensor {
  blockingBackend()
  const { size } = group
  const { rows, columns, shape } = matrixOf(x)
  return withBuffers(group, [x.size, x.size * size], (own, all) => {
    void writeTo(x, own)
    group.allGatherSync(all, own, { label })
    const whole = new Float32Array(x.size * size)
    interleave(whole, all, { rows, columns, size }, 'whole')
    return scopedTensorFrom(whole, [...shape.slice(0, -1), columns * size])
  })
}

/** This rank's part of the columns of [..., columns], summed over the ranks: [..., columns / size]. */
export function reduceScatterColumns(x: Tensor, group: ProcessGroup, label: string): Tensor {
  blockingBackend()
  const { size } = group
  const { rows, columns: all, shape } = matrixOf(x)
  const columns = all / size
  const whole = new Float32Array(x.size)
  void writeTo(x, whole)
  return withBuffers(group, [x.size, x.size / size], (input, output) => {
    interleave(whole, input, { rows, columns, size }, 'slices')
    group.reduceScatterSync(output, input, { label })
    return scopedTensorFrom(output, [...shape.slice(0, -1), columns])
  })
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
