import { tsrError } from '@tsrun/core'
import { sizeOf } from '../backend/shape.ts'
import type { Parameter } from '../model/parameter.ts'

/** The place of one parameter's values in a flat buffer. */
export interface FlatSlot {
  readonly shape: readonly number[]
  /** Index of its first value. */
  readonly offset: number
  /** Number of its values. */
  readonly length: number
}

/** Which part of a flat float32 buffer belongs to which parameter. */
export interface FlatLayout {
  /** By name of the parameter, in the order of the buffer, without gaps. */
  readonly slots: ReadonlyMap<string, FlatSlot>
  /** Number of values of all parameters together. */
  readonly length: number
}

/**
 * Lays parameters out one behind the other, in the given order: the same list makes the same layout
 * on every rank.
 *
 * @throws ERR_TSR_ARGUMENT when two have the same name
 *
 * @example
 * const layout = flatten(model.parameters)
 * const buffer = group.alloc('float32', layout.length)
 */
export function flatten(parameters: readonly Pick<Parameter, 'name' | 'shape'>[]): FlatLayout {
  const slots = new Map<string, FlatSlot>()
  let offset = 0
  for (const { name, shape } of parameters) {
    if (slots.has(name)) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: 'parameters',
        value: `a list with two of the name ${name}`,
        expected: 'a name of its own for each',
      })
    }
    const length = sizeOf(shape)
    slots.set(name, { shape, offset, length })
    offset += length
  }
  return { slots, length: offset }
}

/** The parts of a flat buffer by name of the parameter; they share its memory. */
export function partsOf(
  { slots, length }: FlatLayout,
  buffer: Float32Array,
): ReadonlyMap<string, Float32Array> {
  if (buffer.length !== length) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'buffer',
      value: `one of ${String(buffer.length)} values`,
      expected: `as many as the layout has: ${String(length)}`,
    })
  }
  return new Map(
    Array.from(slots, ([name, slot]) => {
      return [name, buffer.subarray(slot.offset, slot.offset + slot.length)]
    }),
  )
}
