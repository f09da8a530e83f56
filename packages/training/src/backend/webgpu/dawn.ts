import type { TensorInfo } from '@tensorflow/tfjs-core'

// The parts used of the optional packages `webgpu` and `@tensorflow/tfjs-backend-webgpu`, whose own
// declarations require the DOM library.

/** The package `webgpu`. */
export interface Dawn {
  /** @param options - names and values, such as `adapter=...`; used when an adapter is requested */
  create(options: string[]): Gpu
  /** The global names that WebGPU has in a browser. */
  readonly globals: Readonly<Record<string, unknown>>
}

export interface Gpu {
  requestAdapter(options: { powerPreference: 'high-performance' }): Promise<Adapter | null>
}

export interface Adapter {
  readonly info: { readonly vendor: string; readonly device: string; readonly description: string }
  readonly features: ReadonlySet<string>
  readonly limits: Readonly<Record<string, number>>
  requestDevice(descriptor: {
    requiredFeatures: string[]
    requiredLimits: Record<string, number>
  }): Promise<Device>
}

export interface Device {
  readonly lost: Promise<{ readonly reason: string; readonly message: string }>
  addEventListener(
    event: 'uncapturederror',
    listener: (event: { readonly error: { readonly message: string } }) => void,
  ): void
  destroy(): void
}

/** The package `@tensorflow/tfjs-backend-webgpu`. */
export interface Kernels {
  readonly WebGPUBackend: new (device: Device, info: Adapter['info']) => WebGpuTensors
}

type Values = Float32Array | Int32Array | Uint8Array

/** The tensor backend of that package, including private members. */
export interface WebGpuTensors {
  readonly tensorMap: {
    has(dataId: TensorInfo['dataId']): boolean
    get(dataId: TensorInfo['dataId']): { readonly values?: Values | null; readonly dtype: string }
  }
  readSync(dataId: TensorInfo['dataId']): Values
  read(dataId: TensorInfo['dataId']): Promise<Values>
  convertAndCacheOnCPU(dataId: TensorInfo['dataId'], values: Values): Values
}
