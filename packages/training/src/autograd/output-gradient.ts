import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'

/** @throws ERR_TSR_ARGUMENT unless `dy` has the shape of the output that it is the gradient of */
export function checkOutputGradient(dy: Tensor, output: Tensor): void {
  if (dy.shape.join() === output.shape.join()) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'dy',
    value: `a tensor of shape [${dy.shape.join(', ')}]`,
    expected: `the shape of the output, [${output.shape.join(', ')}]`,
  })
}
