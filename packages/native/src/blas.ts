import { messageOf } from '@tsrun/core/errors'
import type { LibraryHandle } from 'koffi'
import { loadKoffi, openLibrary } from './libc.ts'

/** The matrix products of a library, for row-major matrices at addresses. */
export interface Blas {
  /** The name or path of the loaded library. */
  readonly library: string
  /** The kernels that the library selected, for example `SkylakeX`; undefined if unknown. */
  readonly kernels: string | undefined
  /** The address of the first byte of `view`. */
  readonly addressOf: (view: ArrayBufferView) => number
  /**
   * Computes c [m, n] = a [m, k] b [k, n] + beta c in float32. Strides are the numbers of values from one
   * stored row to the next.
   */
  readonly multiply: (
    transposeA: boolean,
    transposeB: boolean,
    m: number,
    n: number,
    k: number,
    a: number,
    aStride: number,
    b: number,
    bStride: number,
    beta: number,
    c: number,
    cStride: number,
  ) => void
}

/** Constants of the C interface of BLAS (cblas.h). */
const [ROW_MAJOR, PLAIN, TRANSPOSED] = [101, 111, 112] as const

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
 * @returns the library, or the reason why it cannot be loaded
 */
export function openBlas(library: string): Blas | string {
  const koffi = loadKoffi()
  if (typeof koffi === 'string') return koffi
  const unset = THREADS.filter((name) => process.env[name] === undefined)
  // OpenBLAS starts its threads when it is loaded, MKL at the first product.
  for (const name of unset) process.env[name] = '1'
  try {
    const loaded = openLibrary(koffi, library)
    const sgemm = bind(loaded, 'void', 'cblas_sgemm', SGEMM)
    if (sgemm === undefined) throw new Error(`${library} has no function cblas_sgemm`)
    const kernels = bind(loaded, 'str', 'openblas_get_corename', '')?.() as string | undefined
    return {
      library,
      kernels,
      addressOf: (view) => Number(koffi.address(view)),
      multiply(transposeA, transposeB, m, n, k, a, aStride, b, bStride, beta, c, cStride) {
        const first = transposeA ? TRANSPOSED : PLAIN
        const second = transposeB ? TRANSPOSED : PLAIN
        sgemm(ROW_MAJOR, first, second, m, n, k, 1, a, aStride, b, bStride, beta, c, cStride)
      },
    }
  } catch (error) {
    for (const name of unset) Reflect.deleteProperty(process.env, name)
    return messageOf(error)
  }
}

const SGEMM =
  'int, int, int, int, int, int, float, uintptr_t, int, uintptr_t, int, float, uintptr_t, int'

/** Binds a function under the first prefix with which the library exports it. */
function bind(
  library: LibraryHandle,
  result: string,
  name: string,
  parameters: string,
): ((...values: number[]) => unknown) | undefined {
  for (const prefix of PREFIXES) {
    try {
      return library.func(`${result} ${prefix}${name}(${parameters})`)
    } catch {
      // Try the next prefix.
    }
  }
  return undefined
}
