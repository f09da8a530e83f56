import { anything, argumentError, declareOptions, positive, type Rules } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { currentBackend, repeated } from '../backend/current.ts'
import type { Parameter } from '../model/parameter.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { gradientNorm, normRule, type NormPart } from './gradient-norm.ts'

/** The groups whose ranks hold different parts of a model. */
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
  /** The largest norm of the gradients after clipping. */
  readonly maxNorm: number
  /** The p of the p-norm: 2 (default) or Infinity. */
  readonly norm?: number
}

/** Validation rules for the options that pipelines accept too. */
export const clipRules = {
  maxNorm: positive('a number above 0'),
  norm: normRule,
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
 * @returns the norm before clipping, the same on all ranks; see {@link gradientNorm}
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
  const { maxNorm, norm, tensor, shard: flat, pipeline } = readOptions(options)
  // A parameter that is listed twice has one gradient, so count it once.
  const byName = new Map(parameters.map((parameter) => [parameter.name, parameter]))
  const parts: NormPart[] = []
  const names: string[] = []
  for (const parameter of byName.values()) {
    const { name, shard, countedElsewhere = false } = parameter
    const gradient = gradients.get(name)
    if (gradient === undefined) continue
    if (tensor === undefined) checkWhole(parameter)
    if (flat === undefined) checkAll(parameter)
    names.push(name)
    if (pipeline !== undefined && countedElsewhere) continue
    const groups = [flat, shard === undefined ? undefined : tensor, pipeline]
    parts.push({ gradient, spread: groups.filter((group) => group !== undefined) })
  }
  const axes = [flat, tensor, pipeline].filter((group) => group !== undefined)
  const total = await gradientNorm(parts, { norm, axes })
  // Round to float32, so that scaling arrays and scaling tensors give the same bits.
  const factor = Math.fround(maxNorm / (total + 1e-6))
  if (factor < 1 && Number.isFinite(total)) scale(gradients, names, factor)
  return total
}

function checkWhole({ name, shape, shard }: ClippedParameter): void {
  if (shard === undefined || shard.shape.join() === shape.join()) return
  throw argumentError('tensor', 'undefined', `the group whose ranks share ${name}`)
}

function checkAll({ name, range }: ClippedParameter): void {
  if (range === undefined || range.to - range.from === sizeOf(range.parameter.shape)) return
  throw argumentError(
    'shard',
    'undefined',
    `the group whose ranks share ${name}, which fullyShard was given`,
  )
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
