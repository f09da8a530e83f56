/// <reference path="./webassembly.d.ts" />
import { kernelBytes } from '#kernels'

/** The exports of the AssemblyScript modules in this folder, which declare their parameters. */
export type KernelExports = Record<
  | 'adam'
  | 'add_scaled'
  | 'add_windows'
  | 'attend_cached'
  | 'column_sums'
  | 'combine_columns'
  | 'cross_entropy'
  | 'finish_rows'
  | 'gate'
  | 'mask'
  | 'max_pool'
  | 'max_pool_gradient'
  | 'multiply'
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
  | 'take_single'
  | 'take_windows'
  | 'transpose'
  | 'window_gradient',
  (...values: (number | boolean)[]) => number
>

const compiled: Partial<Record<'exact' | 'fast', WebAssembly.Module>> = {}

/**
 * Instantiates the kernels on `memory`, in which they keep no state between calls. The first call in a
 * process compiles them.
 *
 * @param math - with `fast`, products fuse multiplications with additions, if this runtime can. Their
 *   rounding then depends on the processor.
 */
export function instantiateKernels(
  memory: WebAssembly.Memory,
  math: 'exact' | 'fast' = 'exact',
): KernelExports {
  const { exports } = new WebAssembly.Instance(moduleFor(math), { env: { memory } })
  return exports as unknown as KernelExports
}

function moduleFor(math: 'exact' | 'fast'): WebAssembly.Module {
  compiled[math] ??= compile(math)
  return compiled[math]
}

function compile(math: 'exact' | 'fast'): WebAssembly.Module {
  const bytes = kernelBytes(math)
  if (math === 'fast' && !WebAssembly.validate(bytes)) return moduleFor('exact')
  return new WebAssembly.Module(bytes)
}
