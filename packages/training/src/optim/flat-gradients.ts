import { argumentError } from '@tsrun/core'
import type { Parameter } from '../model/parameter.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'

/** The position of one parameter's values in a flat buffer. */
export interface FlatSlot {
  readonly shape: readonly number[]
  /** The index of the parameter's first value. */
  readonly offset: number
  /** The number of the parameter's values. */
  readonly length: number
}

/** The positions of parameters in a flat float32 buffer. */
export interface FlatLayout {
  /** The positions by parameter name, in the order of the buffer, without gaps. */
  readonly slots: ReadonlyMap<string, FlatSlot>
  /** The number of values of all parameters together. */
  readonly length: number
}

/**
 * Lays out parameters one after the other, in the given order. The same list gives the same layout
 * on every rank.
 *
 * @throws ERR_TSR_ARGUMENT when two parameters have the same name
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
      throw argumentError(
        'parameters',
        `a list with two parameters named ${name}`,
        'a different name for each',
      )
    }
    const length = sizeOf(shape)
    slots.set(name, { shape, offset, length })
    offset += length
  }
  return { slots, length: offset }
}

/** Returns views of a flat buffer of `layout.length` values by parameter name, as optimizers accept them. */
export function partsOf(
  { slots }: FlatLayout,
  buffer: Float32Array,
): ReadonlyMap<string, Float32Array> {
  return new Map(
    Array.from(slots, ([name, { offset, length }]) => {
      return [name, buffer.subarray(offset, offset + length)]
    }),
  )
}
