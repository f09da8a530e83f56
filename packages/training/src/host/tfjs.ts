import { createRequire, Module } from 'node:module'
import { fileURLToPath } from 'node:url'
import { packageFolder } from '../package-folder.ts'

/**
 * Loads TensorFlow.js with `require`, which takes Node 20 ms; an `import` of the umbrella package takes
 * 180 ms. A script that imports `@tensorflow/tfjs` itself gets the same engine.
 */
const require = createRequire(import.meta.url)
export const core = load('@tensorflow/tfjs-core') as typeof import('@tensorflow/tfjs-core')

/**
 * Loads the gradient functions of TensorFlow.js and the methods of its tensors from a bundle in this
 * package. Loading them from the umbrella package `@tensorflow/tfjs` would take ten times as long.
 */
export function loadGradients(): void {
  load(fileURLToPath(new URL('dist/gradients.cjs', packageFolder)))
}

export function registerWasm(): void {
  load('@tensorflow/tfjs-backend-wasm')
}

export function registerCpu(): void {
  load('@tensorflow/tfjs-backend-cpu')
}

/** Returns the loaded TensorFlow.js modules, each with the name that the Node binding requires. */
export function loadedModules(): [name: string, module: NodeJS.Module][] {
  withLong(() => load('@tensorflow/tfjs'))
  return ['@tensorflow/tfjs', '@tensorflow/tfjs-core'].map((name) => [
    name,
    require.cache[require.resolve(name)]!,
  ])
}

interface Resolver {
  _resolveFilename: (request: string, ...rest: unknown[]) => string
}

/**
 * Resolves the package `long` from the core of TensorFlow.js while `run` loads the umbrella package. The
 * umbrella package requires `long` but does not declare it, which fails with pnpm and Plug'n'Play.
 */
function withLong(run: () => void): void {
  const modules = Module as unknown as Resolver
  const resolve = modules._resolveFilename
  const long = createRequire(require.resolve('@tensorflow/tfjs-core')).resolve('long')
  modules._resolveFilename = (request, ...rest) =>
    request === 'long' ? long : resolve(request, ...rest)
  try {
    run()
  } finally {
    modules._resolveFilename = resolve
  }
}

/**
 * Loads a module without its source maps. `tsrun` enables source maps on ranks, and Node would
 * parse 10 MB of them for TensorFlow.js although their sources are not installed.
 */
function load(name: string): unknown {
  const { sourceMapsEnabled } = process
  process.setSourceMapsEnabled(false)
  try {
    return require(name)
  } finally {
    // Bun does not have the property.
    process.setSourceMapsEnabled((sourceMapsEnabled as boolean | undefined) ?? false)
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
