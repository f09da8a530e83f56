import { registerArrayGradients } from './array-gradients.ts'
import { registerEinsumGradient } from './einsum.ts'
import { registerResizeGradients, registerWindowGradients } from './image-gradients.ts'
import { loadGradients } from '#tfjs'
import { tf } from './tfjs.ts'

let registered: unknown

/**
 * Registers the gradient functions of TensorFlow.js. Registers them again if `@tensorflow/tfjs` was
 * imported since then, because it overwrites them. Corrects the gradients of resizing, of windows and of
 * arrays, and adds the missing gradient of tf.einsum.
 */
export function registerGradients(): void {
  const found = tf.getGradient('ResizeBilinear') as unknown
  if (found !== undefined && found === registered) return
  loadGradients()
  registerResizeGradients()
  registered = tf.getGradient('ResizeBilinear')
  registerWindowGradients()
  registerArrayGradients()
  registerEinsumGradient()
}
