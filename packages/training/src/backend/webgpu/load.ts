import { createRequire } from 'node:module'
import type { KernelBackend } from '@tensorflow/tfjs-core'
import type { BackendFacts, BackendOptions } from '../../tfjs/backend.ts'
import { correctKernels } from '../../tfjs/correct-kernels.ts'
import { tf } from '../../tfjs/tfjs.ts'
import type { Dawn, Kernels } from './dawn.ts'
import { openDevice, type OpenDevice } from './device.ts'
import { guardReads } from './reads.ts'

const require = createRequire(import.meta.url)
/**
 * The device of this process. The reference stays until the process ends, because garbage collection
 * would free the device while threads of Dawn use it.
 */
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

/**
 * Registers the backend on the opened device. The factory of the package would choose any device, and
 * require features that its kernels do not use.
 */
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

/**
 * Defines `navigator.gpu` only while the backend is created, so that no other code assumes that it runs
 * in a browser.
 */
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
