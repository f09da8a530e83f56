import type { TensorInfo } from '@tensorflow/tfjs-core'

// The used parts of the optional packages `webgpu` and `@tensorflow/tfjs-backend-webgpu`. The
// declarations of these packages require the DOM library.

/** The exports of the package `webgpu`, which contains Dawn. */
export interface Dawn {
  /** @param options - options of Dawn for requesting an adapter, such as `adapter=<name>` */
  create(options: string[]): Gpu
  /** The global variables that WebGPU defines in a browser. */
  readonly globals: Readonly<Record<string, unknown>>
}

interface Gpu {
  requestAdapter(options: { powerPreference: 'high-performance' }): Promise<Adapter | null>
}

interface Adapter {
  readonly info: object
  readonly limits: Readonly<Record<string, number>>
  requestDevice(descriptor: {
    requiredFeatures: string[]
    requiredLimits: Record<string, number>
  }): Promise<Device>
}

export interface Device {
  readonly lost: Promise<{ readonly message: string }>
  addEventListener(
    event: 'uncapturederror',
    listener: (event: { readonly error: { readonly message: string } }) => void,
  ): void
  destroy(): void
}

/** The used exports of the package `@tensorflow/tfjs-backend-webgpu`. */
export interface Kernels {
  readonly WebGPUBackend: new (device: Device, info: Adapter['info']) => WebGpuTensors
}

type Values = Float32Array | Int32Array | Uint8Array

/** The tensor backend of `@tensorflow/tfjs-backend-webgpu`, including private members. */
export interface WebGpuTensors {
  readonly tensorMap: {
    has(dataId: TensorInfo['dataId']): boolean
    get(dataId: TensorInfo['dataId']): { readonly values?: Values | null }
  }
  readSync(dataId: TensorInfo['dataId']): Values
  read(dataId: TensorInfo['dataId']): Promise<Values>
  convertAndCacheOnCPU(dataId: TensorInfo['dataId'], values: Values): Values
}

export type OpenDevice = Awaited<ReturnType<typeof openDevice>>

/** The device limits to request for the kernels. Without a request, WebGPU grants only low ones. */
const limits = [
  'maxBufferSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupStorageSize',
  'maxComputeWorkgroupsPerDimension',
  'maxStorageBufferBindingSize',
]

/** Opens a device on the adapter that `wanted` names (see `chooseAdapter`); default: the best adapter. */
export async function openDevice(dawn: Dawn, wanted: string | undefined) {
  const names = await adapterNames(dawn)
  const [best] = names
  if (best === undefined) {
    throw new Error(
      'no adapter was found; install a Vulkan driver of this machine (docs/webgpu.md)',
    )
  }
  const name = wanted === undefined ? best : chooseAdapter(names, wanted)
  const gpu = dawn.create([`adapter=${name}`])
  const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' })
  if (adapter === null) throw new Error(`the adapter '${name}' lacks what WebGPU requires`)
  const device = await adapter.requestDevice({
    requiredFeatures: [],
    requiredLimits: Object.fromEntries(limits.map((limit) => [limit, adapter.limits[limit]!])),
  })
  return { gpu, adapter, device, name }
}

/** A name that no adapter has. The error of Dawn for an unknown name lists all adapters. */
const NO_ADAPTER = 'tsrun: list the adapters'

/** Returns the names of the adapters of all installed drivers, best first, each once. */
export async function adapterNames(dawn: Dawn): Promise<string[]> {
  try {
    await dawn
      .create([`adapter=${NO_ADAPTER}`])
      .requestAdapter({ powerPreference: 'high-performance' })
    return []
  } catch (error) {
    const { message } = error as Error
    return [...new Set([...message.matchAll(/name: '(.+)'$/gm)].map((match) => match[1]!))]
  }
}

/**
 * Returns the adapter name that equals `wanted`, or the only name that contains it. Ignores case.
 *
 * @throws Error that lists the names if none or several of them match
 */
export function chooseAdapter(names: readonly string[], wanted: string): string {
  const part = wanted.toLowerCase()
  const fits = names.filter((name) => name.toLowerCase().includes(part))
  const exact = names.find((name) => name.toLowerCase() === part)
  if (exact !== undefined) return exact
  if (fits.length === 1 && part !== '') return fits[0]!
  const found = fits.length > 1 ? `${fits.length} adapters fit` : 'no adapter fits'
  throw new Error(
    `${found} '${wanted}' (TSRUN_WEBGPU_ADAPTER); there are: ${names.join(', ') || 'none'}`,
  )
}
