import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Variable } from '@tensorflow/tfjs-core'
import { tensorFrom, viewOf } from '../../backend/host-memory.ts'
import { sizeOf } from '../../backend/shape.ts'
import type { Parameter, Shard } from '../../model/parameter.ts'

interface Cut {
  readonly part: Parameter
  readonly group: ProcessGroup
  readonly axis: number
}

/** By the whole one: a tied parameter is cut once. */
const cuts = new WeakMap<Parameter, Cut>()

/** Whether it was a whole parameter before `shardOf` put parts in its place. */
export function isCut(parameter: Parameter): boolean {
  return cuts.has(parameter)
}

/** The parts that variables of tf.layers are, which have no room for it. */
const shards = new WeakMap<Variable, Shard>()

export function shardOfVariable(variable: Variable): Shard | undefined {
  return shards.get(variable)
}

export function markShard(variable: Variable, shard: Shard): void {
  shards.set(variable, shard)
}

export interface CutOptions {
  /** Parts are multiples of it; default 1. */
  readonly grain?: number
  /** Whether one part may have one more than another; default false. */
  readonly isUneven?: boolean
}

/**
 * This rank's part of a parameter along an axis, in its place; the rest is freed.
 *
 * @throws ERR_TSR_ARGUMENT when it does not divide, or is cut in another way already
 */
export function shardOf(
  parameter: Parameter,
  group: ProcessGroup,
  axis: number,
  options: CutOptions = {},
): Parameter {
  const { rank, size } = group
  const { name, shape, value } = parameter
  const known = cuts.get(parameter)
  if (known !== undefined) {
    if (known.axis === axis && known.group === group) return known.part
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'plan',
      value: `a cut of ${name} along axis ${axis}`,
      expected: `one along axis ${known.axis} in the same group, as for the layer that it is tied to`,
    })
  }
  checkExtent(parameter, size, axis, options)
  const beginOf = (place: number): number => Math.floor((place * shape[axis]!) / size)
  const offset = beginOf(rank)
  const extent = beginOf(rank + 1) - offset
  const own = shape.map((whole, i) => (i === axis ? extent : whole))
  const inner = sizeOf(shape.slice(axis + 1))
  const outer = sizeOf(shape.slice(0, axis))
  const part = new Float32Array(outer * extent * inner)
  const whole = viewOf(value)
  for (let i = 0; i < outer; i++) {
    const from = (i * shape[axis]! + offset) * inner
    part.set(whole.subarray(from, from + extent * inner), i * extent * inner)
  }
  value.dispose()
  const made = { name, shape: own, shard: { shape, axis, offset }, value: tensorFrom(part, own) }
  cuts.set(parameter, { part: made, group, axis })
  return made
}

function checkExtent(
  { name, shape }: Parameter,
  size: number,
  axis: number,
  { grain = 1, isUneven = false }: CutOptions,
): void {
  const extent = shape[axis]!
  if (isUneven ? extent >= size : extent % (size * grain) === 0) return
  const each = grain === 1 ? '' : ` times ${String(grain)}`
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: `${name} of shape [${shape.join(', ')}]`,
    value: `${extent} along axis ${axis}`,
    expected: isUneven
      ? `at least one for each of the ${size} ranks that share it`
      : `a multiple of the ${size} ranks that share it${each}`,
  })
}
