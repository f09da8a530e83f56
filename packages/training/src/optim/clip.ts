import { anything, argumentError, declareOptions, positive, type Rules } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { currentBackend, repeated } from '../backend/current.ts'
import { valuesAtHand } from '../backend/host-memory.ts'
import type { Parameter } from '../model/parameter.ts'
import type { Gradient } from '../tfjs/backend.ts'
import { sizeOf, type HostArray } from '../tfjs/host-arrays.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'

/** The groups of ranks that hold different parts of a model. */
export interface ClipGroups {
  /**
   * The tensor parallel group. Its ranks hold different parts of each parameter with a `shard`, and
   * copies of all other parameters.
   */
  readonly tensor?: ProcessGroup
  /** The group passed to `fullyShard`, with its `shards`. Each rank holds a part of every gradient. */
  readonly shard?: ProcessGroup
  /** The pipeline parallel group. A parameter that several stages share counts once. */
  readonly pipeline?: ProcessGroup
}

/** The properties of a parameter that clipping uses. */
export interface ClippedParameter extends Pick<
  Parameter,
  'name' | 'shape' | 'shard' | 'countedElsewhere'
> {
  /** For a shard of `fullyShard`: the range of the parameter's values in this shard. */
  readonly range?: {
    readonly parameter: Pick<Parameter, 'shape'>
    readonly from: number
    readonly to: number
  }
}

/** Options of `clipGradients`. */
export interface ClipOptions extends ClipGroups {
  /** The largest norm of the gradients after clipping. Infinity only computes the norm. */
  readonly maxNorm: number
}

/** Validation rules for the options that pipelines accept too. */
export const clipRules = {
  maxNorm: positive('a number above 0'),
  tensor: anything<ProcessGroup>(),
}

const readOptions = declareOptions({
  ...clipRules,
  shard: anything<ProcessGroup>(),
  pipeline: anything<ProcessGroup>(),
} satisfies Rules<ClipOptions>)

/** Gradients by parameter name. Clipping replaces tensors and scales arrays in place. */
export type ClippedGradients = Map<string, Tensor> | ReadonlyMap<string, Float32Array>

/**
 * Scales gradients down so that their norm is at most `maxNorm`, like torch's clip_grad_norm_. All
 * gradients are multiplied by maxNorm / (norm + 1e-6). Call it on averaged gradients: data parallel
 * ranks then have equal gradients, and need no group here. All ranks of the given groups must call
 * it. If the norm is infinite or NaN, it is returned and the gradients are not changed.
 *
 * @param gradients - arrays are scaled in place, tensors are scaled in place or replaced. Gradients
 *   of other parameters are not changed. Parameters without a gradient are ignored.
 * @returns the norm before clipping, the same on all ranks. Each value counts once, even if several
 *   ranks hold it. Sums are computed in float64; on webgpu, in float32 for each tensor
 * @throws ERR_TSR_ARGUMENT when an option is out of range or unknown, or when a parameter is a
 *   shard and neither `tensor` nor `shard` names the group that holds its other parts
 *
 * @example
 * const gradients = await replica.gradients()
 * const norm = await clipGradients(model.parameters, gradients, { maxNorm: 1, tensor: mesh.tp })
 * optimizer.step(model.parameters, gradients)
 */
export async function clipGradients(
  parameters: readonly ClippedParameter[],
  gradients: ClippedGradients,
  options: ClipOptions,
): Promise<number> {
  const { maxNorm, tensor, shard: flat, pipeline } = readOptions(options)
  // Count the gradient of a parameter that is listed twice only once.
  const byName = new Map(parameters.map((parameter) => [parameter.name, parameter]))
  const counted: Gradient[] = []
  const names: string[] = []
  for (const parameter of byName.values()) {
    const { name, shape, shard, range, countedElsewhere = false } = parameter
    const gradient = gradients.get(name)
    if (gradient === undefined) continue
    if (tensor === undefined && shard !== undefined && shard.shape.join() !== shape.join()) {
      throw argumentError('tensor', 'undefined', `the group whose ranks share ${name}`)
    }
    if (flat === undefined && range && range.to - range.from < sizeOf(range.parameter.shape)) {
      const expected = `the group whose ranks share ${name}, which fullyShard was given`
      throw argumentError('shard', 'undefined', expected)
    }
    names.push(name)
    if (pipeline !== undefined && countedElsewhere) continue
    // If all ranks of the tensor parallel group hold the same values, only the first rank counts them.
    if (tensor === undefined || tensor.rank === 0 || shard !== undefined) counted.push(gradient)
  }
  const total = await normOf(
    counted,
    [flat, tensor, pipeline].filter((group) => group !== undefined),
  )
  // Round to float32, so that scaling arrays and scaling tensors give the same bits.
  const factor = Math.fround(maxNorm / (total + 1e-6))
  if (factor < 1 && Number.isFinite(total)) scale(gradients, names, factor)
  return total
}

function scale(gradients: ClippedGradients, names: readonly string[], factor: number): void {
  const tensors = gradients as Map<string, Tensor>
  const remote: string[] = []
  for (const name of names) {
    const gradient = gradients.get(name)!
    if (ArrayBuffer.isView(gradient)) {
      for (let i = 0; i < gradient.length; i++) gradient[i]! *= factor
      continue
    }
    const scaled = currentBackend().scale?.(gradient, factor)
    if (scaled === undefined) remote.push(name)
    else tensors.set(name, scaled)
  }
  if (remote.length === 0) return
  const inputs = [...remote.map((name) => tensors.get(name)!), tf.scalar(factor)]
  const scaled = repeated('scale', inputs, (all) =>
    all.slice(0, -1).map((gradient) => tf.mul(gradient, all.at(-1)!)),
  )
  tf.dispose(inputs)
  for (const [i, name] of remote.entries()) tensors.set(name, scaled[i]!)
}

/** Returns the norm of the gradients of all ranks, with one all-reduce of one number for each group. */
async function normOf(
  gradients: readonly Gradient[],
  groups: readonly ProcessGroup[],
): Promise<number> {
  const own = await sumsOfSquares(gradients)
  const total = Float64Array.of(own.reduce((sum, value) => sum + value, 0))
  for (const group of groups) {
    if (group.size > 1) await group.allReduce(total, { label: 'gradient norm' })
  }
  return Math.sqrt(total[0]!)
}

/** Returns one sum for each gradient. Sums on a device are fetched together. */
async function sumsOfSquares(gradients: readonly Gradient[]): Promise<number[]> {
  const sums: number[] = []
  const remote: Tensor[] = []
  for (const gradient of gradients) {
    const values = ArrayBuffer.isView(gradient) ? gradient : valuesAtHand(gradient)
    if (values !== undefined) sums.push(sumOfSquares(values, gradient))
    else remote.push(gradient as Tensor)
  }
  if (remote.length > 0) {
    const [stacked] = repeated('sum of squares', remote, (all) => [
      tf.stack(all.map((gradient) => tf.sum(tf.square(gradient)))),
    ])
    sums.push(...(await stacked!.data()))
    stacked!.dispose()
  }
  return sums
}

function sumOfSquares(values: HostArray, gradient: Gradient): number {
  const sum = ArrayBuffer.isView(gradient) ? undefined : currentBackend().sumOfSquares?.(gradient)
  if (sum !== undefined) return sum
  // Use four accumulators, which the CPU updates in parallel: ten times as fast as one.
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
}
