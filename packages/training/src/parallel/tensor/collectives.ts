import { tsrError } from '@tsrun/core'
import type { ProcessGroup, Work } from '@tsrun/distributed'
import { timeSpan, timeWait } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import { scopedTensorFrom, tensorFrom, writeTo } from '../../backend/host-memory.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { allocateAll, freeAfter } from '../group-buffers.ts'
import { checkBackendBlocks } from '../requirements.ts'

/*
 * Collectives on float32 tensors. Each one can run in two ways: inside a pass, where it blocks, or
 * between passes, where it is awaited.
 */

interface PreparedCollective {
  /** The buffer into which the tensor's values are copied before `start`. */
  readonly input: Float32Array
  /** @param label - the name of the operation in error messages */
  readonly start: (label: string) => Work
  /**
   * Returns the values of the result. Call it after the collective has completed and before the
   * buffers are freed.
   */
  readonly output: () => Float32Array
  /** The shape of the resulting tensor. */
  readonly shape: readonly number[]
  /** The buffers to free after use. */
  readonly buffers: readonly Float32Array[]
}

/** Prepares a collective on a tensor. @param shape - the shape of the tensor, the same on all ranks */
export type TensorCollective = (shape: readonly number[], group: ProcessGroup) => PreparedCollective

/** Sums a tensor over the ranks. */
export const sum: TensorCollective = (shape, group) => {
  const buffers = allocateAll(group, [sizeOf(shape)])
  const [input] = buffers as [Float32Array]
  return {
    input,
    start: (label) => group.allReduce(input, { label }),
    output: () => input,
    shape,
    buffers,
  }
}

/** Concatenates the columns of all ranks in rank order: [..., columns] becomes [..., size * columns]. */
export const gatherColumns: TensorCollective = (shape, group) => {
  const { size } = group
  const { rows, columns } = matrixOf(shape)
  const buffers = allocateAll(group, [rows * columns, rows * columns * size])
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

/**
 * Sums a tensor [..., columns] over the ranks. Each rank gets its part of the columns: [...,
 * columns / size].
 */
export const reduceScatterColumns: TensorCollective = (shape, group) => {
  const { size } = group
  const { rows, columns: all } = matrixOf(shape)
  const columns = all / size
  const buffers = allocateAll(group, [rows * all, rows * columns])
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

/**
 * Concatenates the parts of each sequence in rank order: [batch, length, width] becomes [batch,
 * size * length, width].
 */
export const gatherPositions: TensorCollective = ([batch, length, width], group) => ({
  ...gatherColumns([batch!, length! * width!], group),
  shape: [batch!, length! * group.size, width!],
})

/**
 * Sums sequences [batch, length, width] over the ranks. Each rank gets its part of the positions:
 * [batch, length / size, width].
 *
 * @throws ERR_TSR_ARGUMENT when the length is not a multiple of the group's size
 */
export const reduceScatterPositions: TensorCollective = ([batch, length, width], group) => {
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

/**
 * Runs a collective inside a forward or backward pass. The call blocks, because a pass cannot
 * await. The result belongs to the current pass, like the results of other operations.
 *
 * @throws ERR_TSR_BACKEND when the backend can only read values asynchronously
 */
export function runInPass(
  collective: TensorCollective,
  x: Tensor,
  group: ProcessGroup,
  label: string,
): Tensor {
  return runWhile(collective, x, group, label, () => undefined).value
}

/** Runs a collective inside a pass, like `runInPass`, and calls `compute` while it is in progress. */
export function runWhile<T>(
  collective: TensorCollective,
  x: Tensor,
  group: ProcessGroup,
  label: string,
  compute: () => T,
): { readonly value: Tensor; readonly result: T } {
  checkBackendBlocks()
  const { input, start, output, shape, buffers } = collective(x.shape, group)
  let work: Work | undefined
  try {
    timeSpan(group.spans, 'pack', { name: label, bytes: input.byteLength }, () => {
      void writeTo(x, input)
    })
    work = timeSpan(group.spans, 'call', { name: label }, () => start(label))
    const result = compute()
    work.wait()
    const value = timeSpan(group.spans, 'unpack', { name: label, bytes: 4 * sizeOf(shape) }, () =>
      scopedTensorFrom(output(), shape),
    )
    return { value, result }
  } finally {
    for (const buffer of buffers) freeAfter(work, group, buffer)
  }
}

/**
 * Runs a collective between passes, on every backend. The collective starts before the call
 * returns, unless the values must be fetched from a device first.
 *
 * @param x - the tensor; do not dispose it before the promise has settled
 * @returns a tensor that the caller disposes
 */
export async function runBetweenPasses(
  collective: TensorCollective,
  x: Tensor,
  group: ProcessGroup,
  label: string,
): Promise<Tensor> {
  const { input, start, output, shape, buffers } = collective(x.shape, group)
  let work: Work | undefined
  try {
    const facts = { name: label, bytes: input.byteLength }
    const written = timeSpan(group.spans, 'pack', facts, () => writeTo(x, input))
    if (written !== undefined) await written
    const started = timeSpan(group.spans, 'call', { name: label }, () => start(label))
    work = started
    await timeWait(group.spans, { name: label }, () => started)
    return timeSpan(group.spans, 'unpack', { name: label, bytes: 4 * sizeOf(shape) }, () =>
      tensorFrom(output(), shape),
    )
  } finally {
    for (const buffer of buffers) freeAfter(work, group, buffer)
  }
}

interface Layout {
  readonly rows: number
  /** The number of columns of one rank. */
  readonly columns: number
  readonly size: number
}

/**
 * Converts a matrix between two layouts: rows with the columns of all ranks (`whole`), and one block
 * [rows, columns] per rank (`slices`).
 */
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
