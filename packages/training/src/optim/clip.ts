import { refuseUnknown, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { reachesTensors } from '../backend/bridge/select.ts'
import { viewOf } from '../backend/host-memory.ts'
import { overwrite } from '../backend/overwrite.ts'
import { sizeOf } from '../backend/shape.ts'
import { tf } from '../backend/tfjs.ts'
import type { Parameter } from '../model/parameter.ts'
import { gradientNorm, type NormPart } from './gradient-norm.ts'

/** The ranks that hold different parts of a model, where it is cut. */
export interface ClipGroups {
  /** Those that share tensors: parameters with a `shard` are spread over them, the others replicated. */
  readonly tensor?: ProcessGroup
  /** Those that hold a part of every gradient each: the group of `fullyShard`, with its `shards`. */
  readonly shard?: ProcessGroup
  /** The stages of a pipeline; a parameter that several of them have counts once. */
  readonly pipeline?: ProcessGroup
}

/** What clipping has to know of a parameter. */
export interface ClippedParameter extends Pick<
  Parameter,
  'name' | 'shape' | 'shard' | 'countedElsewhere'
> {
  /** Of the `shards` of `fullyShard`: which values of the parameter it has. */
  readonly range?: {
    readonly parameter: Pick<Parameter, 'shape'>
    readonly from: number
    readonly to: number
  }
}

export interface ClipOptions extends ClipGroups {
  /** The norm that the gradients have at most, afterwards. */
  readonly maxNorm: number
  /** 2 (default) or Infinity. */
  readonly norm?: number
}

const KNOWN = Object.keys({
  maxNorm: true,
  norm: true,
  tensor: true,
  shard: true,
  pipeline: true,
} satisfies Record<keyof ClipOptions, true>)

/** Gradients by name of the parameter, whose tensors can be replaced. */
export type ClippedGradients = Map<string, Tensor> | ReadonlyMap<string, Float32Array>

/**
 * Scales gradients down to a norm of `maxNorm` where theirs is larger (as torch's clip_grad_norm_):
 * all by the same factor, maxNorm / (norm + 1e-6). Call it on averaged gradients: those of data
 * parallel ranks are equal then, and need no group here. All ranks of the groups that are named call
 * it. A norm that is not a number, or infinite, is returned, and the gradients stay as they are.
 *
 * @param gradients - arrays are scaled in place, tensors as well or replaced; those of other names
 *   than the parameters' stay, and what has none is passed over
 * @returns the norm before, the same on all ranks; see {@link gradientNorm}
 * @throws ERR_TSR_ARGUMENT when an option is out of range or unknown, or a parameter is a part of one
 *   and neither `tensor` nor `shard` says who has the rest
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
  refuseUnknown(options, KNOWN)
  const { maxNorm, norm = 2, tensor, shard: flat, pipeline } = options
  checkMaxNorm(maxNorm)
  // a parameter that is in the list twice has one gradient
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
  // in the precision of devices, so that arrays and tensors are scaled to the same bits
  const factor = Math.fround(maxNorm / (total + 1e-6))
  if (factor < 1 && Number.isFinite(total)) scale(gradients, names, factor)
  return total
}

/** @throws ERR_TSR_ARGUMENT */
export function checkMaxNorm(maxNorm: unknown): void {
  if (typeof maxNorm === 'number' && maxNorm > 0) return
  const expected = 'a number above 0'
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'maxNorm', value: String(maxNorm), expected })
}

function checkWhole({ name, shape, shard }: ClippedParameter): void {
  if (shard === undefined || shard.shape.join() === shape.join()) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'tensor',
    value: 'undefined',
    expected: `the group whose ranks share ${name}`,
  })
}

function checkAll({ name, range }: ClippedParameter): void {
  if (range === undefined || range.to - range.from === sizeOf(range.parameter.shape)) return
  const expected = `the group whose ranks share ${name}, which fullyShard was given`
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'shard', value: 'undefined', expected })
}

function scale(gradients: ClippedGradients, names: readonly string[], factor: number): void {
  for (const name of names) {
    const gradient = gradients.get(name)!
    if (ArrayBuffer.isView(gradient)) multiply(gradient, gradient, factor)
    else (gradients as Map<string, Tensor>).set(name, scaled(gradient, factor))
  }
}

function scaled(gradient: Tensor, factor: number): Tensor {
  if (reachesTensors()) {
    return overwrite(gradient, (values) => {
      multiply(values, viewOf(gradient), factor)
    })
  }
  const next = tf.keep(tf.mul(gradient, factor))
  gradient.dispose()
  return next
}

function multiply(out: Float32Array, values: Float32Array, factor: number): void {
  for (let i = 0; i < out.length; i++) out[i] = values[i]! * factor
}
