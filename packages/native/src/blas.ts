import type { LibraryHandle } from 'koffi'
import { loadKoffi } from './libc.ts'

/** `cblas_sgemm` for row-major matrices at addresses. Strides between rows are in values. */
export type Sgemm = (
  order: typeof ROW_MAJOR,
  transposeA: number,
  transposeB: number,
  m: number,
  n: number,
  k: number,
  alpha: number,
  a: number,
  aStride: number,
  b: number,
  bStride: number,
  beta: number,
  c: number,
  cStride: number,
) => void

export const ROW_MAJOR = 101
export const PLAIN = 111
export const TRANSPOSED = 112

/** A library with matrix products for this processor. */
export interface Blas {
  /** The name or the path that was loaded. */
  readonly library: string
  /** The kernels that the library selected, for example `SkylakeX`; undefined if it does not say. */
  readonly kernels: string | undefined
  readonly sgemm: Sgemm
  /** The address of the first byte of `view`. */
  readonly addressOf: (view: ArrayBufferView) => number
}

/** The file names under which systems install OpenBLAS, MKL, BLIS and Accelerate. */
export const systemLibraries: readonly string[] =
  process.platform === 'darwin'
    ? ['/System/Library/Frameworks/Accelerate.framework/Accelerate']
    : process.platform === 'win32'
      ? ['libopenblas.dll', 'mkl_rt.2.dll']
      : ['libopenblas.so.0', 'libmkl_rt.so.2', 'libblis.so.4']

/** The wheel scipy-openblas32 adds a prefix to all names, so that two builds can be loaded together. */
const PREFIXES = ['', 'scipy_']

const THREADS = [
  'OPENBLAS_NUM_THREADS',
  'MKL_NUM_THREADS',
  'BLIS_NUM_THREADS',
  'VECLIB_MAXIMUM_THREADS',
] as const

/**
 * Loads a BLAS with 32-bit sizes. It uses one thread, unless a variable of the library, such as
 * OPENBLAS_NUM_THREADS, asks for more.
 *
 * @param library - a path, or a name that the dynamic linker finds
 * @returns the reason if it cannot be loaded
 */
export function openBlas(library: string): Blas | string {
  const koffi = loadKoffi()
  if (typeof koffi === 'string') return koffi
  // OpenBLAS starts its threads when it is loaded, MKL at the first product.
  for (const name of THREADS) process.env[name] ??= '1'
  try {
    const loaded = koffi.load(library)
    const sgemm = bind(loaded, (prefix) => `void ${prefix}cblas_sgemm(${PARAMETERS})`)
    if (sgemm === undefined) return `${library} has no function cblas_sgemm`
    const name = bind(loaded, (prefix) => `str ${prefix}openblas_get_corename()`) as
      (() => string) | undefined
    return {
      library,
      kernels: name?.(),
      sgemm: sgemm as Sgemm,
      addressOf: (view) => Number(koffi.address(view)),
    }
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

const PARAMETERS =
  'int, int, int, int, int, int, float, uintptr_t, int, uintptr_t, int, float, uintptr_t, int'

/** Binds the function under the first prefix with which the library exports it. */
function bind(library: LibraryHandle, prototype: (prefix: string) => string): unknown {
  for (const prefix of PREFIXES) {
    try {
      return library.func(prototype(prefix))
    } catch {
      // Try the next prefix.
    }
  }
  return undefined
}
