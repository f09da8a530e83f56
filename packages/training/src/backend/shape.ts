/** Number of values of a tensor. */
export function sizeOf(shape: readonly number[]): number {
  return shape.reduce((product, length) => product * length, 1)
}
