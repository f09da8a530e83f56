import { createRequire } from 'node:module'
import type { KernelBackend } from '@tensorflow/tfjs-core'
import { tsrError } from '@tsrun/core'
import type { BackendFacts, BackendOptions } from '../../tfjs/backend.ts'
import { correctKernels } from '../../tfjs/correct-kernels.ts'
import { tf } from '../../tfjs/tfjs.ts'
import {
  openDevice,
  type Dawn,
  type Device,
  type Kernels,
  type OpenDevice,
  type WebGpuTensors,
} from './device.ts'

const require = createRequire(import.meta.url)
/** The device of this process. Garbage collection would free it while threads of Dawn use it. */
let opened: OpenDevice | undefined

/**
 * Loads the webgpu backend, which computes in float32 on a GPU through Dawn, Chrome's implementation of
 * WebGPU. Values can only be read asynchronously. The first call in a process opens the device, and later
 * calls reuse it.
 *
 * @see docs/webgpu.md
 */
export async function loadWebGpu({
  adapter = nameFromEnvironment(),
}: BackendOptions = {}): Promise<BackendFacts> {
  if (opened === undefined) {
    const { dawn, kernels } = await importPackages()
    for (const [name, value] of Object.entries(dawn.globals)) {
      if (!(name in globalThis)) Object.defineProperty(globalThis, name, { value })
    }
    opened = await openDevice(dawn, adapter)
    register(kernels, opened)
    correctKernels('webgpu')
  }
  if (!(await tf.setBackend('webgpu'))) throw new Error('it could not be initialized')
  return { device: opened.name, threads: 1 }
}

function nameFromEnvironment(): string | undefined {
  const name = process.env['TSRUN_WEBGPU_ADAPTER']
  return name === '' ? undefined : name
}

async function importPackages(): Promise<{ dawn: Dawn; kernels: Kernels }> {
  try {
    const dawn = (await import('webgpu')) as unknown as Dawn
    const kernels = require('@tensorflow/tfjs-backend-webgpu') as Kernels
    return { dawn, kernels }
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    const missing = code === 'ERR_MODULE_NOT_FOUND' || code === 'MODULE_NOT_FOUND'
    throw new Error(
      missing
        ? 'its packages are not installed; run `npm install webgpu @tensorflow/tfjs-backend-webgpu@4.22.0`'
        : `its packages cannot be loaded: ${message}`,
      { cause },
    )
  }
}

/** Registers the backend. The factory of TensorFlow.js would require features that no kernel uses. */
function register({ WebGPUBackend }: Kernels, { gpu, adapter, device }: OpenDevice): void {
  const backend = withNavigator(gpu, () => new WebGPUBackend(device, adapter.info))
  guardReads(backend, device)
  // If the script defines navigator.gpu, the package has already registered its own backend.
  if (tf.engine().backendNames().includes('webgpu')) tf.removeBackend('webgpu')
  tf.registerBackend('webgpu', () => backend as unknown as KernelBackend)
  process.once('exit', () => {
    device.destroy()
  })
}

/** Defines `navigator.gpu` only during `run`, so that no other code assumes that it runs in a browser. */
function withNavigator<T>(gpu: OpenDevice['gpu'], run: () => T): T {
  const before = Object.getOwnPropertyDescriptor(globalThis, 'navigator')
  Object.defineProperty(globalThis, 'navigator', { value: { gpu }, configurable: true })
  try {
    return run()
  } finally {
    if (before === undefined) Reflect.deleteProperty(globalThis, 'navigator')
    else Object.defineProperty(globalThis, 'navigator', before)
  }
}

/**
 * Makes reads throw where they would fail silently in Node. A synchronous read of values on the device
 * throws, because TensorFlow.js would use a browser canvas. Device errors are otherwise not reported, so
 * the next read throws them.
 */
function guardReads(backend: WebGpuTensors, device: Device): void {
  let problem: string | undefined
  device.addEventListener('uncapturederror', ({ error }) => {
    problem ??= error.message
  })
  void device.lost.then(({ message }) => {
    problem ??= `the device was lost: ${message}`
  })
  const check = () => {
    if (problem === undefined) return
    throw tsrError('ERR_TSR_BACKEND', { backend: 'webgpu', reason: problem })
  }
  const read = backend.read.bind(backend)
  backend.read = async (dataId) => {
    check()
    try {
      const values = await read(dataId)
      check()
      return values
    } catch (error) {
      check()
      throw error
    }
  }
  backend.readSync = (dataId) => {
    const { values } = backend.tensorMap.get(dataId)
    if (values) return values
    throw tsrError('ERR_TSR_SYNC_READ', { backend: 'webgpu' })
  }
  const cache = backend.convertAndCacheOnCPU.bind(backend)
  // Cache the values only if the tensor still exists: it may be disposed while a `read` is pending.
  backend.convertAndCacheOnCPU = (dataId, values) =>
    backend.tensorMap.has(dataId) ? cache(dataId, values) : values
}
