import type { Adapter, Dawn, Device, Gpu } from './dawn.ts'

export interface OpenDevice {
  readonly gpu: Gpu
  readonly adapter: Adapter
  readonly device: Device
  /** The adapter name that the driver reports. */
  readonly name: string
}

/**
 * The device limits to request for the kernels of TensorFlow.js. Without a request, WebGPU grants only
 * low default limits.
 */
const limits = [
  'maxBufferSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupStorageSize',
  'maxComputeWorkgroupsPerDimension',
  'maxStorageBufferBindingSize',
]

/**
 * Opens a device for this process on the adapter that `wanted` names (see `chooseAdapter`); default: the
 * best adapter.
 *
 * @throws Error that says what is missing
 */
export async function openDevice(dawn: Dawn, wanted: string | undefined): Promise<OpenDevice> {
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

/**
 * Returns the names of the adapters of all installed drivers, best first, without duplicates. If several
 * cards have the same name, Dawn uses the first.
 */
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
 * Returns the adapter name that `wanted` equals, or the only one that contains `wanted`. Ignores case.
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
