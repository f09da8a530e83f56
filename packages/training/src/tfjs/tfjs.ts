import { createRequire, Module } from 'node:module'
import { fileURLToPath } from 'node:url'
import type {
  KernelFunc,
  NamedAttrMap,
  NamedTensorMap,
  Tensor,
  TensorInfo,
} from '@tensorflow/tfjs-core'
import { tsrError } from '@tsrun/core'
import { packageFolder } from '../package-folder.ts'

/**
 * The one TensorFlow.js of this process, without its layers, converters and browser backends.
 *
 * It is loaded with `require`, which takes Node 20 ms; an `import` of the umbrella package takes
 * 180 ms. A script that imports `@tensorflow/tfjs` itself gets this same engine.
 */
const require = createRequire(import.meta.url)
export const tf = load('@tensorflow/tfjs-core') as typeof import('@tensorflow/tfjs-core')

export type { Tensor } from '@tensorflow/tfjs-core'

/** Whether it is a tensor, of this TensorFlow.js or of another copy of it. */
export function isTensor(value: unknown): value is Tensor {
  return typeof (value as Partial<Tensor> | null | undefined)?.dataSync === 'function'
}

explainMissingBackend(tf.engine() as unknown as Registry)

/** The part of TensorFlow.js's engine that finds a backend when the first tensor is made. */
interface Registry {
  readonly registryFactory: object
  initializeBackendsAndReturnBest: () => unknown
}

/** TensorFlow.js says only that there is no backend, not how one is loaded. */
function explainMissingBackend(engine: Registry): void {
  const initialize = engine.initializeBackendsAndReturnBest.bind(engine)
  engine.initializeBackendsAndReturnBest = () => {
    if (Object.keys(engine.registryFactory).length === 0) {
      throw tsrError('ERR_TSR_BACKEND_NOT_LOADED', {})
    }
    return initialize()
  }
}

/**
 * Loads the gradient functions of TensorFlow.js and the methods of its tensors. They are a bundle of
 * ours: the umbrella package, which is the only other form that Node can load, takes ten times as long.
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

/**
 * Our TensorFlow.js modules, loaded, each with the name under which the package of its Node binding
 * requires it.
 */
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
 * The umbrella package requires `long`, which only its core names as a dependency: where packages see no
 * others than theirs (pnpm, Plug'n'Play), that of the core is taken.
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
 * Loads a module without source maps, which `tsrun` enables for the ranks. Node would parse those of
 * TensorFlow.js, 10 MB, although the sources that they lead to are not installed.
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

/** Replaces a kernel of a backend. `make` gets the original one, for the calls that ours does not handle. */
export function replaceKernel(
  kernelName: string,
  backendName: string,
  make: (original: KernelFunc) => KernelFunc,
): void {
  const original = tf.getKernel(kernelName, backendName)
  tf.unregisterKernel(kernelName, backendName)
  tf.registerKernel({ ...original, kernelFunc: make(original.kernelFunc) })
}

/** Runs a kernel without the operation around it: there are no checks and no entry on the tape. */
export function runKernel(
  name: string,
  inputs: Readonly<Record<string, TensorInfo>>,
  attrs: NamedAttrMap = {},
): Tensor {
  return tf.engine().runKernel(name, inputs as unknown as NamedTensorMap, attrs)
}
