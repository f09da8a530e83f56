import type { KernelFunc, TensorInfo } from '@tensorflow/tfjs-core'
import { tf } from './tensorflow.ts'
import type { WasmBackend } from './wasm-backend.ts'

/**
 * Lets clones share the memory of their tensor, as on the other backends. The wasm backend's own
 * kernel copies it, and the tape clones whatever it saves: every activation and every weight.
 */
export function installSharedIdentity(): void {
  const stock = tf.getKernel('Identity', 'wasm')
  tf.unregisterKernel('Identity', 'wasm')
  const kernelFunc: KernelFunc = (call) => {
    const { x } = call.inputs as { x: TensorInfo }
    if (x.dtype === 'string') return stock.kernelFunc(call)
    const backend = call.backend as WasmBackend
    backend.incRef(x.dataId)
    return { dataId: x.dataId, shape: x.shape, dtype: x.dtype }
  }
  tf.registerKernel({ ...stock, kernelFunc })
}
