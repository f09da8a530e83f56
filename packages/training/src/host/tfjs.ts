import { createRequire, Module } from 'node:module'
import { fileURLToPath } from 'node:url'
import { tsrError } from '@tsrun/core'
import { packageFolder } from '../package-folder.ts'

/**
 * Loads the core of TensorFlow.js with `require`, which takes 20 ms. A script that imports
 * `@tensorflow/tfjs` or `@tensorflow/tfjs-layers` itself gets the same engine.
 */
const require = createRequire(import.meta.url)
export const core = loadCore()

function loadCore(): typeof import('@tensorflow/tfjs-core') {
  const path = '@tensorflow/tfjs-core'
  try {
    return load(path) as typeof import('@tensorflow/tfjs-core')
  } catch (cause) {
    throw tsrError('ERR_TSR_BUILT_FILE', { path }, { cause })
  }
}

/**
 * Loads the gradient functions of TensorFlow.js and the methods of its tensors from a bundle in this
 * package. The only other form that Node can load is the umbrella package `@tensorflow/tfjs`.
 */
export function loadGradients(): void {
  load(fileURLToPath(new URL('dist/gradients.cjs', packageFolder)))
}

export function registerWasm(): void {
  load('@tensorflow/tfjs-backend-wasm')
}

/** Without `firstUse: false`, the first tensor on the cpu backend prints an advertisement of tfjs-node. */
export function registerCpu(): void {
  load('@tensorflow/tfjs-backend-cpu')
  Object.assign(core.findBackend('cpu'), { firstUse: false })
}

/**
 * Returns the modules of TensorFlow.js that the Node binding requires, by name. The core replaces the
 * umbrella package. The binding uses the rest of that package only to register a progress bar for `fit`
 * of tf.layers.
 */
export function loadedModules(): [name: string, module: NodeJS.Module][] {
  const umbrella = new Module('@tensorflow/tfjs')
  umbrella.exports = {
    ...core,
    CustomCallback: Object,
    registerCallbackConstructor: () => undefined,
  }
  umbrella.loaded = true
  return [
    ['@tensorflow/tfjs', umbrella],
    ['@tensorflow/tfjs-core', require.cache[require.resolve('@tensorflow/tfjs-core')]!],
  ]
}

/**
 * Loads a module without its source maps. `tsrun` enables source maps on ranks, and Node would
 * parse 10 MB of them for TensorFlow.js although their sources are not installed.
 */
function load(name: string): unknown {
  // Bun lacks `process.sourceMapsEnabled`.
  const enabled = (process as Partial<NodeJS.Process>).sourceMapsEnabled ?? false
  process.setSourceMapsEnabled(false)
  try {
    return require(name)
  } finally {
    process.setSourceMapsEnabled(enabled)
  }
}

const events = ['uncaughtException', 'unhandledRejection'] as const

/**
 * Runs `load` and removes the listeners for uncaught errors that it installs on the process.
 *
 * The generated code of the wasm backend installs two listeners that rethrow the error. With them,
 * the exit code would change, Node would print pages of minified source, and the error report would
 * name an unhandled rejection.
 */
export async function withoutErrorListeners(load: () => Promise<void>): Promise<void> {
  const before = new Set(events.flatMap((event) => process.rawListeners(event)))
  try {
    await load()
  } finally {
    for (const event of events) {
      for (const listener of process.rawListeners(event)) {
        if (!before.has(listener)) process.removeListener(event, listener as () => void)
      }
    }
  }
}
