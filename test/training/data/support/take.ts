import type { Tensor } from '@tsrun/training'

/** The dtype, shape and values of a tensor, which is disposed. */
export function take(tensor: Tensor): Pick<Tensor, 'dtype' | 'shape'> & { values: number[] } {
  const { dtype, shape } = tensor
  const values = [...tensor.dataSync()]
  tensor.dispose()
  return { dtype, shape, values }
}
