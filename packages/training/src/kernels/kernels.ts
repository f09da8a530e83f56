/// <reference path="./webassembly.d.ts" />
import { readFileSync } from 'node:fs'
import { tsrError } from '@tsrun/core'
import { packageFolder } from '../package-folder.ts'

/** What the AssemblyScript modules beside this file export; addresses are in bytes. */
export interface KernelExports {
  scratch_bytes(): number
  product(
    c: number,
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
  sum_rows(out: number, x: number, rows: number, columns: number, sums: number): void
  mask(out: number, x: number, y: number, count: number): void
  scatter_add_float32: ScatterAdd
  scatter_add_int32: ScatterAdd
  add_scaled(out: number, x: number, factor: number, y: number, count: number): void
  adam(
    next: number,
    value: number,
    gradient: number,
    mean: number,
    square: number,
    count: number,
    rate: number,
    scale: number,
    epsilon: number,
    beta1: number,
    beta2: number,
    keep: number,
  ): void
}

type ScatterAdd = (
  out: number,
  x: number,
  ids: number,
  rows: number,
  columns: number,
  segments: number,
) => void

/** Where the build puts the kernels. */
const file = new URL('dist/kernels.wasm', packageFolder)

let compiled: WebAssembly.Module | undefined

/** Binds the kernels to `memory`; they keep nothing in it. Compiles them at the first call. */
export function instantiateKernels(memory: WebAssembly.Memory): KernelExports {
  compiled ??= new WebAssembly.Module(readKernels())
  return new WebAssembly.Instance(compiled, { env: { memory } }).exports as unknown as KernelExports
}

function readKernels(): Uint8Array<ArrayBuffer> {
  try {
    return readFileSync(file)
  } catch (cause) {
    throw tsrError('ERR_TSR_INTERNAL', { what: `${file.pathname} is missing` }, { cause })
  }
}
