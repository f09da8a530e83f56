import type * as Backends from './backends.ts'
import { cpuBackend } from './cpu.ts'
import { wasmBackend } from './wasm/backend.ts'

/** The backends that a web page can load. */
export const backends: typeof Backends.backends = { wasm: wasmBackend, cpu: cpuBackend }
