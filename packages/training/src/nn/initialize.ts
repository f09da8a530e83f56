import { tensorFrom } from '../backend/host-memory.ts'
import type { Parameter } from '../model/parameter.ts'
import { generator, uniform } from '../random/generator.ts'

/** A parameter that is not sharded, with these initial values. */
export function createParameter(
  name: string,
  shape: readonly number[],
  values: Float32Array,
): Parameter {
  return { name, shape, value: tensorFrom(values, shape) }
}

/**
 * Weights for a layer of `fanIn` inputs that feeds a ReLU, uniform in +-sqrt(6 / fanIn) (He et al.,
 * 2015): the variance 2 / fanIn keeps activations of a deep network at their scale.
 *
 * Uniform rather than normal: no logarithm or cosine, whose last bit differs between engines.
 *
 * @param name - of the parameter; with `seed` it alone decides the values
 * @param length - number of values
 */
export function heUniform(name: string, seed: number, length: number, fanIn: number): Float32Array {
  return uniformValues(name, seed, length, Math.sqrt(6 / fanIn))
}

/** Uniform in +-limit, a standard deviation of limit / sqrt(3); `name` and `seed` alone decide. */
export function uniformValues(
  name: string,
  seed: number,
  length: number,
  limit: number,
): Float32Array {
  const next = generator(name, seed)
  return Float32Array.from({ length }, () => (2 * uniform(next) - 1) * limit)
}
