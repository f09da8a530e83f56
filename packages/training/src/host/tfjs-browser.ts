import * as tfjs from '@tensorflow/tfjs-core'
import '@tensorflow/tfjs-core/dist/public/chained_ops/register_all_chained_ops.js'
import '@tensorflow/tfjs-core/dist/register_all_gradients.js'
import '@tensorflow/tfjs-backend-cpu'
import { setWasmPaths } from '@tensorflow/tfjs-backend-wasm'
import wasm from '@tensorflow/tfjs-backend-wasm/dist/tfjs-backend-wasm-simd.wasm'
import type * as Host from './tfjs.ts'

export const core: typeof Host.core = tfjs

/**
 * Removes a backend that TensorFlow.js registered on import. Returns a function that registers it again.
 */
function registrationOf(name: string, priority: number): () => void {
  const factory = core.findBackendFactory(name)
  core.removeBackend(name)
  return () => {
    if (!(name in core.engine().registryFactory)) core.registerBackend(name, factory, priority)
  }
}

export const registerCpu: typeof Host.registerCpu = registrationOf('cpu', 1)
const register = registrationOf('wasm', 2)

export const registerWasm: typeof Host.registerWasm = () => {
  core.env().set('WASM_HAS_MULTITHREAD_SUPPORT', false)
  const url = URL.createObjectURL(new Blob([wasm], { type: 'application/wasm' }))
  const names = ['', '-simd', '-threaded-simd'].map((name) => `tfjs-backend-wasm${name}.wasm`)
  setWasmPaths(Object.fromEntries(names.map((name) => [name, url])))
  register()
}

export const loadGradients: typeof Host.loadGradients = () => undefined

export const withoutErrorListeners: typeof Host.withoutErrorListeners = (load) => load()
