import type { TensorBackend } from '../tfjs/backend.ts'
import { cpuBackend } from './cpu.ts'
import { wasmBackend } from './wasm/backend.ts'
import { webgpuBackend } from './webgpu/backend.ts'

/** The backends by their names in TensorFlow.js. Loading a backend from another package adds it here. */
export const backends: Record<string, TensorBackend> = {
  wasm: wasmBackend,
  cpu: cpuBackend,
  webgpu: webgpuBackend,
}
