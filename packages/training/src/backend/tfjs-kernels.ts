import type {
  KernelFunc,
  NamedAttrMap,
  NamedTensorMap,
  Tensor,
  TensorInfo,
} from '@tensorflow/tfjs-core'
import { tf } from './tfjs.ts'

/** Puts a kernel of ours in the place of a backend's, which `make` gets for what ours leaves to it. */
export function replaceKernel(
  kernelName: string,
  backendName: string,
  make: (stock: KernelFunc) => KernelFunc,
): void {
  const stock = tf.getKernel(kernelName, backendName)
  tf.unregisterKernel(kernelName, backendName)
  tf.registerKernel({ ...stock, kernelFunc: make(stock.kernelFunc) })
}

/** Runs a kernel past the operation around it: no checks, and no entry on the tape. */
export function runKernel(
  name: string,
  inputs: Readonly<Record<string, TensorInfo>>,
  attrs: NamedAttrMap = {},
): Tensor {
  return tf.engine().runKernel(name, inputs as unknown as NamedTensorMap, attrs)
}
