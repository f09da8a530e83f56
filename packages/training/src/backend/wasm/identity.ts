import type { TensorInfo } from '@tensorflow/tfjs-core'
import { replaceKernel } from '../tfjs-kernels.ts'
import type { WasmBackend } from './backend.ts'

/**
 * Lets clones share the memory of their tensor, as on the other backends. The wasm backend's own
 * kernel copies it, and the tape clones whatever it saves: every activation and every weight.
 */
export function installSharedIdentity(): void {
  replaceKernel('Identity', 'wasm', (stock) => (call) => {
    const { x } = call.inputs as { x: TensorInfo }
    if (x.dtype === 'string') return stock(call)
    const backend = call.backend as WasmBackend
    backend.incRef(x.dataId)
    return { dataId: x.dataId, shape: x.shape, dtype: x.dtype }
  })
}
