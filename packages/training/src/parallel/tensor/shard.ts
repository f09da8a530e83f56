import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { tensorFrom, viewOf } from '../../backend/host-memory.ts'
import { sizeOf } from '../../backend/shape.ts'
import type { Parameter } from '../../nn/parameter.ts'

/** By the whole one: a tied parameter is cut once. */
const shards = new WeakMap<Parameter, Parameter>()

/**
 * This rank's part of a parameter along an axis, in its place; the rest is freed.
 *
 * @param grain - parts are multiples of it
 * @throws ERR_TSR_ARGUMENT when it does not divide
 */
export function shardOf(
  parameter: Parameter,
  { rank, size }: ProcessGroup,
  axis: number,
  grain = 1,
): Parameter {
  const known = shards.get(parameter)
  if (known !== undefined) return known
  const { name, shape, value } = parameter
  if (shape[axis]! % (size * grain) !== 0) {
    const each = grain === 1 ? '' : ` times ${String(grain)}`
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: `${name} of shape [${shape.join(', ')}]`,
      value: `${shape[axis]!} along axis ${axis}`,
      expected: `a multiple of the ${size} ranks that share it${each}`,
    })
  }
  const extent = shape[axis]! / size
  const own = shape.map((whole, i) => (i === axis ? extent : whole))
  const inner = sizeOf(shape.slice(axis + 1))
  const outer = sizeOf(shape.slice(0, axis))
  const part = new Float32Array(outer * extent * inner)
  const whole = viewOf(value)
  for (let i = 0; i < outer; i++) {
    const from = (i * shape[axis]! + rank * extent) * inner
    part.set(whole.subarray(from, from + extent * inner), i * extent * inner)
  }
  value.dispose()
  const shard = { shape, axis, offset: rank * extent }
  const made = { name, shape: own, shard, value: tensorFrom(part, own) }
  shards.set(parameter, made)
  return made
}
