/// <reference path="./webassembly.d.ts" />
import { kernelBytes } from '#kernels'

/**
 * The exports of the AssemblyScript modules in this folder, which declare their arguments: addresses in
 * bytes, then numbers and flags.
 */
export type KernelExports = Record<
  | 'adam'
  | 'add_scaled'
  | 'add_windows'
  | 'column_sums'
  | 'combine_columns'
  | 'cross_entropy'
  | 'finish_rows'
  | 'gate'
  | 'mask'
  | 'max_pool'
  | 'max_pool_gradient'
  | 'normalize'
  | 'normalize_gradients'
  | 'product'
  | 'scale'
  | 'scatter_add'
  | 'scratch_bytes'
  | 'softmax_gradient'
  | 'softmax_rows'
  | 'sum_of_squares'
  | 'sum_rows'
  | 'take_windows'
  | 'window_gradient',
  (...values: (number | boolean)[]) => number
>

let compiled: WebAssembly.Module | undefined

/**
 * Instantiates the kernels on `memory`, in which they keep no state between calls. The first call in a
 * process compiles them.
 */
export function instantiateKernels(memory: WebAssembly.Memory): KernelExports {
  compiled ??= new WebAssembly.Module(kernelBytes())
  const { exports } = new WebAssembly.Instance(compiled, { env: { memory } })
  return exports as unknown as KernelExports
}
