import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import { packageFolder } from '../package-folder.ts'

/**
 * The one TensorFlow.js of this process, without its layers, converters and browser backends.
 *
 * Loaded with `require`: Node then needs 20 ms for it, against 180 ms for `import` of the umbrella
 * package. A script that imports `@tensorflow/tfjs` itself gets this same engine.
 */
const require = createRequire(import.meta.url)
export const tf = load('@tensorflow/tfjs-core') as typeof import('@tensorflow/tfjs-core')

export type { Tensor } from '@tensorflow/tfjs-core'

/**
 * Registers TensorFlow.js' gradient functions, once. They come in a bundle of ours: the umbrella
 * package, the only other form that Node can load, takes ten times as long.
 */
export function registerGradients(): void {
  load(fileURLToPath(new URL('dist/gradients.cjs', packageFolder)))
}

export function registerWasm(): void {
  load('@tensorflow/tfjs-backend-wasm')
}

export function registerCpu(): void {
  load('@tensorflow/tfjs-backend-cpu')
}

/** Our TensorFlow.js, loaded, by the names under which the package of its Node binding asks for it. */
export function loadedModules(): [name: string, module: NodeJS.Module][] {
  load('@tensorflow/tfjs')
  return ['@tensorflow/tfjs', '@tensorflow/tfjs-core'].map((name) => [
    name,
    require.cache[require.resolve(name)]!,
  ])
}

/**
 * Without source maps, which `tsrun` turns on for the ranks: Node would parse those of TensorFlow.js,
 * 10 MB, and what they lead to is not installed.
 */
function load(name: string): unknown {
  const { sourceMapsEnabled } = process
  process.setSourceMapsEnabled(false)
  try {
    return require(name)
  } finally {
    process.setSourceMapsEnabled(sourceMapsEnabled)
  }
}
