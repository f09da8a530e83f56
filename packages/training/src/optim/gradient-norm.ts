import { shown, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { HostArray } from '../tfjs/host-arrays.ts'
import { valuesAtHand } from '../backend/host-memory.ts'
import { tf } from '../tfjs/tfjs.ts'

/** A gradient, or the part of it that a rank holds. */
export interface NormPart {
  readonly gradient: Tensor | Float32Array
  /**
   * Of the axes: those whose ranks hold different parts. Along the other axes all ranks hold the same,
   * which is counted once.
   */
  readonly spread: readonly ProcessGroup[]
}

export interface GradientNormOptions {
  /** 2 (default): the root of the sum of squares. Infinity: the largest magnitude. */
  readonly norm?: number
  /**
   * The groups over which parts are put together, one behind the other: all ranks of each call this,
   * with one collective a group. Default: none.
   */
  readonly axes?: readonly ProcessGroup[]
}

/**
 * The norm of all gradients together, the same on all ranks: each value counts once, wherever it is.
 *
 * Sums are taken in float64, on webgpu per tensor in float32. Each axis costs one all-reduce of one
 * number: for tensor parallel ranks the parts of sharded parameters are spread, and those of
 * replicated ones the same; for pipeline stages all are spread; for data parallel ranks, who have the
 * same gradients already, there is no axis unless each holds a part (ZeRO).
 *
 * @throws ERR_TSR_ARGUMENT for another norm
 *
 * @example
 * const parts = [
 *   { gradient: shard, spread: [mesh.tp, mesh.pp] },
 *   { gradient: bias, spread: [mesh.pp] },
 * ]
 * const norm = await gradientNorm(parts, { axes: [mesh.tp, mesh.pp] })
 */
export async function gradientNorm(
  parts: Iterable<NormPart>,
  { norm = 2, axes = [] }: GradientNormOptions = {},
): Promise<number> {
  checkNorm(norm)
  // a value that all ranks of an axis have comes from the first of them
  const counted = Array.from(parts).filter(({ spread }) =>
    axes.every((group) => group.rank === 0 || spread.includes(group)),
  )
  const gradients = counted.map(({ gradient }) => gradient)
  const own = await measure(gradients, norm === 2 ? sumOfSquares : largest)
  let total = norm === 2 ? own.reduce((sum, value) => sum + value, 0) : Math.max(0, ...own)
  for (const group of axes) total = await reduce(total, group, norm)
  return norm === 2 ? Math.sqrt(total) : total
}

interface Measure {
  readonly onHost: (values: HostArray) => number
  readonly onDevice: (gradient: Tensor) => Tensor
}

// Four lanes, of which none waits for the others: ten times as fast as one sum.

const sumOfSquares: Measure = {
  onHost(values) {
    const lanes: [number, number, number, number] = [0, 0, 0, 0]
    const whole = values.length - (values.length % 4)
    for (let i = 0; i < whole; i += 4) {
      lanes[0] += values[i]! * values[i]!
      lanes[1] += values[i + 1]! * values[i + 1]!
      lanes[2] += values[i + 2]! * values[i + 2]!
      lanes[3] += values[i + 3]! * values[i + 3]!
    }
    for (let i = whole; i < values.length; i++) lanes[0] += values[i]! * values[i]!
    return lanes[0] + lanes[1] + lanes[2] + lanes[3]
  },
  onDevice: (gradient) => tf.sum(tf.square(gradient)),
}

const largest: Measure = {
  onHost(values) {
    // unlike a comparison, Math.max keeps a NaN
    const lanes: [number, number, number, number] = [0, 0, 0, 0]
    const whole = values.length - (values.length % 4)
    for (let i = 0; i < whole; i += 4) {
      lanes[0] = Math.max(lanes[0], Math.abs(values[i]!))
      lanes[1] = Math.max(lanes[1], Math.abs(values[i + 1]!))
      lanes[2] = Math.max(lanes[2], Math.abs(values[i + 2]!))
      lanes[3] = Math.max(lanes[3], Math.abs(values[i + 3]!))
    }
    for (let i = whole; i < values.length; i++) lanes[0] = Math.max(lanes[0], Math.abs(values[i]!))
    return Math.max(...lanes)
  },
  onDevice: (gradient) => tf.max(tf.abs(gradient)),
}

/** One number a gradient; those on a device are fetched together. */
async function measure(
  gradients: readonly (Tensor | Float32Array)[],
  { onHost, onDevice }: Measure,
): Promise<number[]> {
  const numbers: number[] = []
  const remote: Tensor[] = []
  for (const gradient of gradients) {
    const values = ArrayBuffer.isView(gradient) ? gradient : valuesAtHand(gradient)
    if (values !== undefined) numbers.push(onHost(values))
    else remote.push(gradient as Tensor)
  }
  if (remote.length > 0) {
    const stacked = tf.tidy(() => tf.keep(tf.stack(remote.map(onDevice))))
    numbers.push(...(await stacked.data()))
    stacked.dispose()
  }
  return numbers
}

async function reduce(value: number, group: ProcessGroup, norm: number): Promise<number> {
  if (group.size === 1) return value
  const buffer = group.alloc('float64', 1)
  try {
    buffer[0] = value
    await group.allReduce(buffer, { op: norm === 2 ? 'sum' : 'max', label: 'gradient norm' })
    return buffer[0]
  } finally {
    group.free(buffer)
  }
}

/** @throws ERR_TSR_ARGUMENT */
export function checkNorm(norm: unknown): void {
  if (norm === 2 || norm === Infinity) return
  const expected = '2 or Infinity'
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'norm', value: shown(norm), expected })
}
