/// <reference path="./webassembly.d.ts" />
import { kernelBytes } from '#kernels'

/** The exports of the AssemblyScript modules in this folder. Addresses are in bytes. */
export interface KernelExports extends WindowKernels, Passes {
  scratch_bytes(): number
  product(
    c: number,
    cRow: number,
    accumulates: boolean,
    a: number,
    b: number,
    m: number,
    n: number,
    k: number,
    aRow: number,
    aColumn: number,
    bRow: number,
    bColumn: number,
    start: number,
    finisher: number,
    mask: number,
    scratch: number,
  ): void
  finish_rows(
    c: number,
    rows: number,
    columns: number,
    start: number,
    finisher: number,
    mask: number,
  ): void
  sum_rows(out: number, x: number, rows: number, columns: number): void
  softmax_rows(
    p: number,
    rows: number,
    columns: number,
    stride: number,
    visible: number,
    scale: number,
    stats: number,
    known: boolean,
  ): void
  add_scaled(out: number, x: number, factor: number, y: number, count: number): void
}

/** Kernels whose arguments are addresses, then numbers. */
export type Passes = Record<
  | 'adam'
  | 'attend_cached'
  | 'column_sums'
  | 'combine_columns'
  | 'cross_entropy'
  | 'gate'
  | 'mask'
  | 'max_pool'
  | 'max_pool_gradient'
  | 'normalize'
  | 'normalize_gradients'
  | 'scale'
  | 'scatter_add'
  | 'softmax_gradient'
  | 'sum_of_squares'
  | 'transpose',
  (...values: number[]) => number
>

/** Kernels on sliding windows of images. `geometry` is the address of a `Geometry` (geometry.as.ts). */
interface WindowKernels {
  take_windows(patches: number, images: number, first: number, last: number, geometry: number): void
  add_windows(images: number, patches: number, first: number, last: number, geometry: number): void
  window_gradient(
    kind: number,
    images: number,
    weights: number,
    factor: number,
    dy: number,
    windows: number,
    multiplier: number,
    geometry: number,
  ): void
}

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
