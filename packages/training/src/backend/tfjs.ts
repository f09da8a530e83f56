import { createRequire } from 'node:module'

/**
 * The one TensorFlow.js of this process, without its layers, converters and browser backends.
 *
 * Loaded with `require`: Node then needs 20 ms for it, against 180 ms for `import` of the umbrella
 * package. A script that imports `@tensorflow/tfjs` itself gets this same engine.
 */
const require = createRequire(import.meta.url)
export const tf = require('@tensorflow/tfjs-core') as typeof import('@tensorflow/tfjs-core')

export type { Tensor } from '@tensorflow/tfjs-core'

/**
 * Registers TensorFlow.js' gradient functions, once. Only the umbrella package carries them in a
 * form that Node can load; it takes 60 ms, so it waits until the tape is used.
 */
export function registerGradients(): void {
  require('@tensorflow/tfjs')
}

export function registerWasm(): void {
  require('@tensorflow/tfjs-backend-wasm')
}

export function registerCpu(): void {
  require('@tensorflow/tfjs-backend-cpu')
}

/** Our TensorFlow.js, loaded, by the names under which the package of its Node binding asks for it. */
export function loadedModules(): [name: string, module: NodeJS.Module][] {
  registerGradients()
  return ['@tensorflow/tfjs', '@tensorflow/tfjs-core'].map((name) => [
    name,
    require.cache[require.resolve(name)]!,
  ])
}
