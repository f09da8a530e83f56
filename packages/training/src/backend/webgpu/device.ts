import type { Adapter, Dawn, Device, Gpu } from './dawn.ts'

export interface OpenDevice {
  readonly gpu: Gpu
  readonly adapter: Adapter
  readonly device: Device
  /** The name of the adapter, as the driver reports it. */
  readonly name: string
}

/** The limits that matter to the kernels of TensorFlow.js; without a request, a device has low limits. */
const limits = [
  'maxBufferSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupStorageSize',
  'maxComputeWorkgroupsPerDimension',
  'maxStorageBufferBindingSize',
]

/**
 * Opens a device for this process on the adapter that `wanted` names, else on the best one.
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

/** A name that no adapter has: Dawn's error for it lists the adapters. */
const NO_ADAPTER = 'tsrun: list the adapters'

/**
 * Returns the names of the adapters of the installed drivers, the best first. Each name occurs once: of
 * cards with equal names, Dawn uses the first.
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
 * Returns the name that `wanted` stands for: the whole name, or a part that no other name contains.
 * Ignores case.
 *
 * @throws Error with the names if none or several match
 */
export function chooseAdapter(names: readonly string[], wanted: string): string {
  const part = wanted.toLowerCase()
  const fits = names.filter((name) => name.toLowerCase().includes(part))
  const exact = names.find((name) => name.toLowerCase() === part)
  if (exact !== undefined) return exact
  if (fits.length === 1 && part !== '') return fits[0]!
  const found = fits.length > 1 ? `${String(fits.length)} adapters fit` : 'no adapter fits'
  throw new Error(
    `${found} '${wanted}' (TSRUN_WEBGPU_ADAPTER); there are: ${names.join(', ') || 'none'}`,
  )
}
