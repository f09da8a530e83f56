import { argumentError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { tensorFrom, viewOf } from '../../backend/host-memory.ts'
import type { Parameter } from '../../model/parameter.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'

/**
 * The shard that has replaced each parameter, so that a tied parameter is sharded once. The map is global,
 * because a style, which users may write, receives only a layer, a group and a name.
 */
const shardings = new WeakMap<Parameter, { part: Parameter; group: ProcessGroup; axis: number }>()

export function isSharded(parameter: Parameter): boolean {
  return shardings.has(parameter)
}

export interface ShardingOptions {
  /** The axis is cut at multiples of this number, such as the size of an attention head; default 1. */
  readonly grain?: number
  /** Whether the sizes of parts along the axis may differ by one; default false. */
  readonly isUneven?: boolean
}

/**
 * Returns this rank's part of a parameter along an axis, and disposes the whole parameter.
 *
 * @throws ERR_TSR_ARGUMENT when the parameter cannot be divided, or is already sharded in another
 *   way
 */
export function shardOf(
  parameter: Parameter,
  group: ProcessGroup,
  axis: number,
  options: ShardingOptions = {},
): Parameter {
  const { rank, size } = group
  const { name, shape, value } = parameter
  const known = shardings.get(parameter)
  if (known !== undefined) {
    if (known.axis === axis && known.group === group) return known.part
    throw argumentError(
      'plan',
      `one that shards ${name} along axis ${axis}`,
      `axis ${known.axis} in the same group, as for the layer that it is tied to`,
    )
  }
  checkExtent(parameter, size, axis, options)
  const beginOf = (index: number) => Math.floor((index * shape[axis]!) / size)
  const offset = beginOf(rank)
  const extent = beginOf(rank + 1) - offset
  const own = shape.with(axis, extent)
  const inner = sizeOf(shape.slice(axis + 1))
  const outer = sizeOf(shape.slice(0, axis))
  const values = new Float32Array(outer * extent * inner)
  const whole = viewOf(value)
  for (let i = 0; i < outer; i++) {
    const from = (i * shape[axis]! + offset) * inner
    values.set(whole.subarray(from, from + extent * inner), i * extent * inner)
  }
  value.dispose()
  const part = { name, shape: own, shard: { shape, axis, offset }, value: tensorFrom(values, own) }
  shardings.set(parameter, { part, group, axis })
  return part
}

function checkExtent(
  { name, shape }: Parameter,
  size: number,
  axis: number,
  { grain = 1, isUneven = false }: ShardingOptions,
) {
  const extent = shape[axis]!
  if (isUneven ? extent >= size : extent % (size * grain) === 0) return
  throw argumentError(
    `${name} of shape [${shape.join(', ')}]`,
    grain === 1 ? `${extent} along axis ${axis}` : `one of ${extent / grain} heads`,
    isUneven
      ? `at least one for each of the ${size} ranks that share it`
      : `a multiple of the ${size} ranks that share it`,
  )
}
