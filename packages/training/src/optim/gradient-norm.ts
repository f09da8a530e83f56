import { choice } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { currentBackend, repeated } from '../backend/current.ts'
import { valuesAtHand } from '../backend/host-memory.ts'
import type { HostArray } from '../tfjs/host-arrays.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'

/** A gradient, or this rank's part of a gradient. */
export interface NormPart {
  readonly gradient: Tensor | Float32Array
  /**
   * The mesh axes along which ranks hold different parts of the gradient. Along all other axes,
   * ranks hold the same values, which count once.
   */
  readonly spread: readonly ProcessGroup[]
}

/** Options of `gradientNorm`. */
export interface GradientNormOptions {
  /**
   * The p of the p-norm. 2 (default): the square root of the sum of squares. Infinity: the largest
   * magnitude.
   */
  readonly norm?: number
  /**
   * The groups over which to reduce, one after the other, with one collective for each group. All
   * ranks of each group must call this function. Default: none.
   */
  readonly axes?: readonly ProcessGroup[]
}

export const normRule = choice(2, Infinity).default(2)

/**
 * Returns the norm of all gradients together, the same on all ranks. Each value counts once, even
 * if several ranks hold it.
 *
 * Sums are computed in float64; on webgpu, in float32 for each tensor. Each axis takes one
 * all-reduce of one number. Along the tensor parallel axis, only sharded parameters are spread.
 * Along the pipeline axis, all parameters are spread. Data parallel ranks have the same gradients
 * and need no axis, unless each rank holds a part (ZeRO).
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
  options: GradientNormOptions = {},
): Promise<number> {
  const norm = normRule.check('norm', options.norm)
  const { axes = [] } = options
  // If all ranks of an axis hold the same values, only the first rank counts them.
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
  readonly name: string
  readonly onBackend?: (gradient: Tensor | Float32Array) => number | undefined
  readonly onHost: (values: HostArray) => number
  readonly onDevice: (gradient: Tensor) => Tensor
}

// Use four independent sums, which the CPU computes in parallel: ten times as fast as one sum.

const sumOfSquares: Measure = {
  name: 'sum of squares',
  onBackend: (gradient) =>
    ArrayBuffer.isView(gradient) ? undefined : currentBackend().sumOfSquares?.(gradient),
  onHost(values) {
    const sums: [number, number, number, number] = [0, 0, 0, 0]
    const whole = values.length - (values.length % 4)
    for (let i = 0; i < whole; i += 4) {
      sums[0] += values[i]! * values[i]!
      sums[1] += values[i + 1]! * values[i + 1]!
      sums[2] += values[i + 2]! * values[i + 2]!
      sums[3] += values[i + 3]! * values[i + 3]!
    }
    for (let i = whole; i < values.length; i++) sums[0] += values[i]! * values[i]!
    return sums[0] + sums[1] + sums[2] + sums[3]
  },
  onDevice: (gradient) => tf.sum(tf.square(gradient)),
}

const largest: Measure = {
  name: 'largest',
  onHost(values) {
    // Math.max propagates NaN; the operator > would not.
    const sums: [number, number, number, number] = [0, 0, 0, 0]
    const whole = values.length - (values.length % 4)
    for (let i = 0; i < whole; i += 4) {
      sums[0] = Math.max(sums[0], Math.abs(values[i]!))
      sums[1] = Math.max(sums[1], Math.abs(values[i + 1]!))
      sums[2] = Math.max(sums[2], Math.abs(values[i + 2]!))
      sums[3] = Math.max(sums[3], Math.abs(values[i + 3]!))
    }
    for (let i = whole; i < values.length; i++) sums[0] = Math.max(sums[0], Math.abs(values[i]!))
    return Math.max(...sums)
  },
  onDevice: (gradient) => tf.max(tf.abs(gradient)),
}

/** Returns one number for each gradient. Numbers on a device are fetched together. */
async function measure(
  gradients: readonly (Tensor | Float32Array)[],
  { name, onBackend, onHost, onDevice }: Measure,
): Promise<number[]> {
  const numbers: number[] = []
  const remote: Tensor[] = []
  for (const gradient of gradients) {
    const values = ArrayBuffer.isView(gradient) ? gradient : valuesAtHand(gradient)
    if (values !== undefined) numbers.push(onBackend?.(gradient) ?? onHost(values))
    else remote.push(gradient as Tensor)
  }
  if (remote.length > 0) {
    const [stacked] = repeated(name, remote, (all) => [tf.stack(all.map(onDevice))])
    numbers.push(...(await stacked!.data()))
    stacked!.dispose()
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
