import type { Algorithm } from './algorithm.ts'

/**
 * The algorithm of a sum after each rank has multiplied its input, in place: the input is the
 * output too, or a copy that was made for this.
 */
export function premultiplied(algorithm: Algorithm): Algorithm {
  return function* (channel, operation) {
    const { name, dtype, factor, input, count } = operation
    const elements = name === 'reduceScatter' ? count * channel.size : count
    channel.kernels.scale(dtype, input, elements, factor)
    yield* algorithm(channel, { ...operation, reduction: 'sum' })
  }
}
