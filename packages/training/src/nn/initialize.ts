import { tsrError, where } from '@tsrun/core'
import { createTensor, tensorFrom } from '../backend/host-memory.ts'
import type { Parameter } from '../model/parameter.ts'
import { generator, uniform } from '../random/generator.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import type { Initializer } from './init.ts'

/** Drawing so many values takes a second or more. */
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
  // First check that a backend is loaded and has the memory.
  const isDrawn = typeof values === 'function' && sizeOf(shape) >= MANY
  if (isDrawn) createTensor(shape, () => undefined).dispose()
  const filled = typeof values === 'function' ? values({ name, shape, seed }) : values
  const place = filled.findIndex(Number.isNaN)
  if (place >= 0) {
    const value = `NaN at index ${place}`
    throw tsrError('ERR_TSR_ARGUMENT', { name: `values of ${name}`, value, expected: 'numbers' })
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
 * Returns weights for a layer with `fanIn` inputs before a ReLU, uniform in +-sqrt(6 / fanIn) (He et al.,
 * 2015). Their variance, 2 / fanIn, preserves the scale of the activations in a deep network.
 *
 * Normal values would need logarithms and cosines, whose last bits differ between JavaScript engines.
 *
 * @param name - the name of the parameter; the values depend only on `name` and `seed`
 * @param length - the number of values
 */
export function heUniform(name: string, seed: number, length: number, fanIn: number): Float32Array {
  return uniformValues(name, seed, length, Math.sqrt(6 / fanIn))
}

/**
 * Returns values uniform in [-limit, limit], with standard deviation limit / sqrt(3). They depend
 * only on `name` and `seed`.
 */
export function uniformValues(
  name: string,
  seed: number,
  length: number,
  limit: number,
): Float32Array {
  // A limit of 0 marks values that will be replaced. Drawing them would take seconds for a large model.
  if (limit === 0) return new Float32Array(length)
  const next = generator(name, seed)
  return Float32Array.from({ length }, () => (2 * uniform(next) - 1) * limit)
}

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
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'range',
    value: `[${String(from)}, ${String(to)})`,
    expected: `a part of [0, ${String(layers)})`,
  })
}
