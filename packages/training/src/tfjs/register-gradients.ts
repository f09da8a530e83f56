import type { Tensor } from '@tensorflow/tfjs-core'
import { registerArrayGradients } from './array-gradients.ts'
import { contract, type Term } from './einsum.ts'
import { registerResizeGradients } from './resize-gradients.ts'
import { registerWindowGradients } from './window-gradients.ts'
import { loadGradients } from '#tfjs'
import { tf } from './tfjs.ts'

let registered: unknown

/**
 * Registers the gradient functions of TensorFlow.js. Registers them again if `@tensorflow/tfjs` was
 * imported since then, because it overwrites them. Corrects the gradients of resizing, of windows and of
 * arrays, and adds the missing gradient of tf.einsum: that of one operand is the einsum of the
 * output's gradient and the other operand.
 */
export function registerGradients(): void {
  const found = tf.getGradient('ResizeBilinear') as unknown
  if (found !== undefined && found === registered) return
  loadGradients()
  registerResizeGradients()
  registered = tf.getGradient('ResizeBilinear')
  registerWindowGradients()
  registerArrayGradients()
  tf.registerGradient({
    kernelName: 'Einsum',
    saveAllInputs: true,
    gradFunc(dy, operands, attrs) {
      const equation = (attrs['equation'] as string).replace(/\s/g, '')
      const [inputs, output] = equation.split('->') as [string, string]
      const labels = inputs.split(',')
      const terms = operands.map((tensor, i): Term => ({ tensor, labels: labels[i]! }))
      const ofOutput = { tensor: dy as Tensor, labels: output }
      return Object.fromEntries(
        terms.map((term, i): [string, () => Tensor] => {
          const others = terms.filter((_, k) => k !== i)
          return [String(i), () => gradientOf(term, [ofOutput, ...others])]
        }),
      )
    },
  })
}

function gradientOf({ tensor, labels }: Term, factors: readonly Term[]): Tensor {
  const isKnown = Array.from(labels, (label) => factors.some((term) => term.labels.includes(label)))
  const known = Array.from(labels)
    .filter((_, axis) => isKnown[axis])
    .join('')
  // If the einsum only sums over an axis, all values along that axis have the same gradient.
  const shape = tensor.shape.map((size, axis) => (isKnown[axis] ? size : 1))
  return tf.broadcastTo(tf.reshape(contract(factors, known), shape), tensor.shape)
}
