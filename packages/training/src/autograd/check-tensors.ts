import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'

/** @throws ERR_TSR_ARGUMENT for a tensor that is disposed: kernels would look for its values in vain */
export function checkAlive(name: string, tensor: Tensor): void {
  if (!tensor.isDisposed) return
  const expected = 'one that is there: dispose a recording when its output is no longer needed'
  throw tsrError('ERR_TSR_ARGUMENT', { name, value: 'a tensor that is disposed', expected })
}

/** @throws ERR_TSR_ARGUMENT unless `dy` is there, and has the shape of the output that it is the gradient of */
export function checkOutputGradient(dy: Tensor, output: Tensor): void {
  checkAlive('dy', dy)
  if (dy.shape.join() === output.shape.join()) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'dy',
    value: `a tensor of shape [${dy.shape.join(', ')}]`,
    expected: `the shape of the output, [${output.shape.join(', ')}]`,
  })
}
