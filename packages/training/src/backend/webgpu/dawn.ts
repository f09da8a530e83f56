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

export interface Gpu {
  requestAdapter(options: { powerPreference: 'high-performance' }): Promise<Adapter | null>
}

export interface Adapter {
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
