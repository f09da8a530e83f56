import type { TensorBackend } from '../tfjs/backend.ts'
import { cpuBackend } from './cpu.ts'
import { tensorflowBackend } from './tensorflow/backend.ts'
import { wasmBackend } from './wasm/backend.ts'
import { webgpuBackend } from './webgpu/backend.ts'

/** The backends by their names in TensorFlow.js. */
export const backends: Readonly<Record<string, TensorBackend>> = {
  wasm: wasmBackend,
  cpu: cpuBackend,
  tensorflow: tensorflowBackend,
  webgpu: webgpuBackend,
}
