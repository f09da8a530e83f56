import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'

/** @throws ERR_TSR_ARGUMENT for a disposed tensor, for which kernels fail without naming the cause */
export function checkAlive(name: string, tensor: Tensor): void {
  if (!tensor.isDisposed) return
  const expected = 'a live one: dispose a recording only when its output is no longer needed'
  throw tsrError('ERR_TSR_ARGUMENT', { name, value: 'a disposed tensor', expected })
}

/** @throws ERR_TSR_ARGUMENT when `dy` is disposed, or does not have the shape of `output` */
export function checkOutputGradient(dy: Tensor, output: Tensor): void {
  checkAlive('dy', dy)
  if (dy.shape.join() === output.shape.join()) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'dy',
    value: `a tensor of shape [${dy.shape.join(', ')}]`,
    expected: `the shape of the output, [${output.shape.join(', ')}]`,
  })
}
