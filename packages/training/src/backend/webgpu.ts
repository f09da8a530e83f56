import { createRequire } from 'node:module'
import type { KernelBackend } from '@tensorflow/tfjs-core'
import type { BackendFacts, BackendOptions } from './backend.ts'
import { tf } from './tfjs.ts'
import type { Dawn, Kernels } from './webgpu/dawn.ts'
import { openDevice, type OpenDevice } from './webgpu/device.ts'
import { guardReads } from './webgpu/reads.ts'

const require = createRequire(import.meta.url)
/** Referenced as long as the process lives: Dawn frees what is collected under its own threads. */
let opened: OpenDevice | undefined

/**
 * The GPU through Dawn, Chrome's WebGPU, in float32. Values come back asynchronously only.
 *
 * The first call of a process opens the device; later ones return to it.
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
  }
  if (!(await tf.setBackend('webgpu'))) throw new Error('it could not be initialised')
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
        ? 'its packages are not there; run `npm install webgpu @tensorflow/tfjs-backend-webgpu@4.22.0`'
        : `its packages cannot be loaded: ${message}`,
      { cause },
    )
  }
}

/** A device of our own: the package's factory takes any, and asks for features that it never uses. */
function register({ WebGPUBackend }: Kernels, { gpu, adapter, device }: OpenDevice): void {
  const backend = withNavigator(gpu, () => new WebGPUBackend(device, adapter.info))
  guardReads(backend, device)
  // Where the script has a navigator.gpu of its own, the package has registered another one.
  if (tf.engine().backendNames().includes('webgpu')) tf.removeBackend('webgpu')
  tf.registerBackend('webgpu', () => backend as unknown as KernelBackend)
  process.once('exit', () => {
    device.destroy()
  })
}

/** The backend looks for `navigator.gpu`, once; for the rest of the process there is no browser. */
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
