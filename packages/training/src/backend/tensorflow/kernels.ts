import type { TensorInfo } from '@tensorflow/tfjs-core'
import { tf } from '../tfjs.ts'
import { replaceKernel, runKernel } from '../tfjs-kernels.ts'

interface FusedMatMulCall {
  readonly inputs: { readonly a: TensorInfo; readonly b: TensorInfo; readonly bias?: TensorInfo }
  readonly attrs: { readonly activation: string }
}

/**
 * Lets the fused matMul of the tensorflow backend take kernels' inputs (TensorInfo), as those of
 * the other backends do: its own is made of operations that take tensors only. Activations with
 * parameters go through that one still.
 */
export function installFusedMatMul(): void {
  replaceKernel('_FusedMatMul', 'tensorflow', (stock) => (call) => {
    const { inputs, attrs } = call as unknown as FusedMatMulCall
    const { a, b, bias } = inputs
    const { activation } = attrs
    if (activation !== 'linear' && activation !== 'relu') return stock(call)
    return tf.tidy(() => {
      const product = runKernel('BatchMatMul', { a, b }, call.attrs)
      const sum = bias === undefined ? product : runKernel('Add', { a: product, b: bias })
      return activation === 'relu' ? runKernel('Relu', { x: sum }) : sum
    })
  })
}

interface StepCall {
  readonly inputs: { readonly x: TensorInfo }
  readonly attrs: { readonly alpha: number }
}

/** The gradient of relu in two operations instead of seven, a sixth of the time for small tensors. */
export function installStep(): void {
  replaceKernel('Step', 'tensorflow', (stock) => (call) => {
    const { inputs, attrs } = call as unknown as StepCall
    const { x } = inputs
    if (attrs.alpha !== 0 || x.dtype !== 'float32') return stock(call)
    return tf.tidy(() => runKernel('Relu', { x: runKernel('Sign', { x }) }))
  })
}
