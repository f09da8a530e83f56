import { argumentError, host, shown, where } from '@tsrun/core'
import { createTensor, tensorFrom } from '../backend/host-memory.ts'
import type { Parameter } from '../model/parameter.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import type { Initializer } from './init.ts'

/** The number of random values that take a second or more to draw. */
const MANY = 2 ** 20

/**
 * Creates a parameter that is not sharded.
 *
 * @param name - the global name, such as `head.weight`, which identifies the parameter in
 *   checkpoints and replicas
 * @param values - float32 values, or a function that makes them, such as an initializer of `init`
 * @param seed - the seed of random initial values, which also depend on the name; default 0
 * @throws ERR_TSR_ARGUMENT for an empty name, an invalid shape, NaN, or values that do not fit the
 *   shape; ERR_TSR_BACKEND_NOT_LOADED; ERR_TSR_TENSOR_MEMORY before a function draws many values
 *
 * @example
 * const scale = createParameter('scale', [3], init.ones)
 */
export function createParameter(
  name: string,
  shape: readonly number[],
  values: Float32Array | Initializer,
  seed = 0,
): Parameter {
  nameRule.check('name', name)
  shapeRule.check(`the shape of ${name}`, shape)
  // Before drawing, check that a backend is loaded and has enough memory.
  const isDrawn = typeof values === 'function' && sizeOf(shape) >= MANY
  if (isDrawn) createTensor(shape, () => undefined).dispose()
  const filled: unknown = typeof values === 'function' ? values({ name, shape, seed }) : values
  if (!host.types.isFloat32Array(filled)) {
    const expected =
      typeof values === 'function' ? ', from a function such as init.heUniform()' : ''
    throw argumentError(`values of ${name}`, shown(filled), `a Float32Array${expected}`)
  }
  const place = filled.findIndex(Number.isNaN)
  if (place >= 0) {
    throw argumentError(`values of ${name}`, `NaN at index ${place}`, 'numbers')
  }
  return { name, shape: [...shape], value: tensorFrom(filled, shape) }
}

const nameRule = where<string>(
  (value) => typeof value === 'string' && value.length > 0,
  'the name of a parameter, such as head.weight',
)

const shapeRule = where<readonly number[]>(
  (value) => Array.isArray(value) && value.every((size) => Number.isInteger(size) && size > 0),
  'an array of positive sizes',
)

/**
 * @returns the range of the layers to build; default: all layers
 * @throws ERR_TSR_ARGUMENT unless the range is non-empty and within the layers
 */
export function checkRange(
  range: readonly [from: number, to: number] | undefined,
  layers: number,
): readonly [from: number, to: number] {
  const [from, to] = range ?? [0, layers]
  const isPart = Number.isInteger(from) && Number.isInteger(to) && 0 <= from && to <= layers
  if (isPart && from < to) return [from, to]
  throw argumentError('range', `[${from}, ${to})`, `a part of [0, ${layers})`)
}
