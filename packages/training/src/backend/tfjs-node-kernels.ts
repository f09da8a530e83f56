import type { NamedAttrMap, NamedTensorMap, Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import { tf } from './tensorflow.ts'

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
  const original = tf.getKernel('_FusedMatMul', 'tensorflow').kernelFunc
  tf.unregisterKernel('_FusedMatMul', 'tensorflow')
  tf.registerKernel({
    kernelName: '_FusedMatMul',
    backendName: 'tensorflow',
    kernelFunc: (call) => {
      const { inputs, attrs } = call as unknown as FusedMatMulCall
      const { a, b, bias } = inputs
      const { activation } = attrs
      if (activation !== 'linear' && activation !== 'relu') return original(call)
      return tf.tidy(() => {
        const product = run('BatchMatMul', { a, b }, call.attrs)
        const sum = bias === undefined ? product : run('Add', { a: product, b: bias })
        return activation === 'relu' ? run('Relu', { x: sum }) : sum
      })
    },
  })
}

interface StepCall {
  readonly inputs: { readonly x: TensorInfo }
  readonly attrs: { readonly alpha: number }
}

/** The gradient of relu in two operations instead of seven, a sixth of the time for small tensors. */
export function installStep(): void {
  const original = tf.getKernel('Step', 'tensorflow').kernelFunc
  tf.unregisterKernel('Step', 'tensorflow')
  tf.registerKernel({
    kernelName: 'Step',
    backendName: 'tensorflow',
    kernelFunc: (call) => {
      const { inputs, attrs } = call as unknown as StepCall
      const { x } = inputs
      if (attrs.alpha !== 0 || x.dtype !== 'float32') return original(call)
      return tf.tidy(() => run('Relu', { x: run('Sign', { x }) }))
    },
  })
}

function run(name: string, inputs: Record<string, TensorInfo>, attrs: NamedAttrMap = {}): Tensor {
  return tf.engine().runKernel(name, inputs as unknown as NamedTensorMap, attrs)
}
