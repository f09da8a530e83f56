import { backends } from '#backends'
import {
  choice,
  createLogger,
  host,
  importOptional,
  messageOf,
  readTensorFlowManifest,
  readVariable,
  tsrError,
} from '@tsrun/core'
import type {
  Backend,
  BackendFacts,
  BackendName,
  BackendOptions,
  TensorBackend,
} from '../tfjs/backend.ts'
import { registerGradients } from '../tfjs/register-gradients.ts'
import { loadCpu } from './cpu.ts'
import { loadWasm } from './wasm/load.ts'
import { loadWebGpu } from './webgpu/load.ts'

const loaders: Readonly<Record<BackendName, (options: BackendOptions) => Promise<BackendFacts>>> = {
  tensorflow: loadTensorFlow,
  webgpu: loadWebGpu,
  wasm: loadWasm,
  cpu: loadCpu,
}

/** The package of the backend tensorflow. */
interface TensorFlowPackage {
  readonly tensorflowBackend: TensorBackend
  readonly loadTensorFlow: () => Promise<BackendFacts>
}

async function loadTensorFlow(): Promise<BackendFacts> {
  const name = '@tsrun/tensorflow'
  const load = async () => (await import(name)) as TensorFlowPackage
  const tensorflow = await importOptional('it', name, load)
  backends['tensorflow'] = tensorflow.tensorflowBackend
  return await tensorflow.loadTensorFlow()
}

const nameRule = choice('auto', ...Object.keys(loaders))
const mathRule = choice('exact', 'fast').optional()

/**
 * Loads the tensor backend `name` and makes it the current backend of TensorFlow.js.
 *
 * `auto` selects the fastest backend that is installed and works: tensorflow (after `tsrun setup
 * tensorflow`), else wasm. If a named backend cannot be loaded, the call throws and does not use
 * another backend. At TSRUN_LOG_LEVEL=info, the log shows the backend.
 *
 * @param name - default: the variable TSRUN_BACKEND, else `auto`
 * @param options - the device, for backends with several devices
 * @throws ERR_TSR_ARGUMENT for an unknown name or option, ERR_TSR_ENVIRONMENT, ERR_TSR_BACKEND when the backend cannot be loaded
 */
export async function loadBackend(
  name: 'auto' | BackendName | undefined = host.env['TSRUN_BACKEND'] as 'auto' | undefined,
  options: BackendOptions = {},
): Promise<Backend> {
  const backend =
    name === undefined || name === 'auto' ? await loadBest(options) : await load(name, options)
  const { device, threads, blas } = backend
  const products = blas === undefined ? '' : `, with matrix products of ${blas}`
  createLogger('training').info(
    { backend: backend.name, device, threads, blas },
    `tensors are computed by ${backend.name} on ${device}, ${threads} ${threads === 1 ? 'thread' : 'threads'}${products}`,
  )
  return backend
}

async function loadBest(options: BackendOptions): Promise<Backend> {
  try {
    if (readTensorFlowManifest() !== undefined) return await load('tensorflow')
  } catch (error) {
    createLogger('training').warn(
      { reason: (error as Error).message },
      'TensorFlow is set up but cannot be used: taking wasm',
    )
  }
  return await load('wasm', options)
}

async function load(name: BackendName, options: BackendOptions = {}): Promise<Backend> {
  nameRule.check('backend (TSRUN_BACKEND)', name)
  const math = mathRule.check('math', options.math) ?? readVariable('TSRUN_MATH', mathRule)
  try {
    const facts = await loaders[name]({ ...options, math })
    // Register gradients now: a script may call tf.grad, or methods such as x.add(y), at any time.
    registerGradients()
    return { name, ...facts }
  } catch (cause) {
    const reason = messageOf(cause)
    throw tsrError('ERR_TSR_BACKEND', { backend: name, reason }, { cause })
  }
}
