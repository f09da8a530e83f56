import { adapterNames, chooseAdapter } from './adapters.ts'
import type { Adapter, Dawn, Device, Gpu } from './dawn.ts'

export interface OpenDevice {
  readonly gpu: Gpu
  readonly adapter: Adapter
  readonly device: Device
  /** What the driver calls the adapter. */
  readonly name: string
}

/** The limits that TensorFlow.js' kernels ask about; without a request a device has small ones. */
const limits = [
  'maxBufferSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupStorageSize',
  'maxComputeWorkgroupsPerDimension',
  'maxStorageBufferBindingSize',
]

/**
 * Opens a device of its own on the adapter that `wanted` names, else on the best one.
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
  if (adapter === null) throw new Error(`the adapter '${name}' lacks what WebGPU asks for`)
  const device = await adapter.requestDevice({
    requiredFeatures: [],
    requiredLimits: Object.fromEntries(limits.map((limit) => [limit, adapter.limits[limit]!])),
  })
  return { gpu, adapter, device, name }
}
