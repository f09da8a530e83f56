import { createLogger } from '@tsrun/core'
import { blasLibraries, openBlas, type Blas } from '#kernels'
import type { WasmHeap } from './heap.ts'

/**
 * Finds a BLAS that computes the same products as the kernels: the first of `blasLibraries`.
 *
 * @returns undefined if there is none, or with TSRUN_BLAS=off
 * @throws Error if the library that TSRUN_BLAS names cannot be used
 */
export function findBlas(heap: WasmHeap): Blas | undefined {
  const logger = createLogger('training')
  const libraries = blasLibraries((reason) => {
    logger.warn({ reason }, 'it is unknown which BLAS tsrun setup blas has installed')
  })
  for (const [library, origin] of libraries) {
    const blas = openBlas(library)
    const isFound = typeof blas !== 'string'
    if (isFound && isRight(blas, heap)) return blas
    const problem = isFound ? 'its products are wrong' : blas
    if (origin === 'TSRUN_BLAS') throw new Error(`TSRUN_BLAS is ${library}: ${problem}`)
    if (isFound) logger.warn({ library }, `${library} is not used: ${problem}`)
  }
  return undefined
}

/**
 * Test sizes [m, n, k] that reach both the unpacked and the packed code of a BLAS. For the last size, n k
 * and m n are so large that `WasmHeap.multiply` neither divides the product nor transposes its operands.
 */
const SIZES = [
  [1, 67, 33],
  [19, 1, 130],
  [33, 65, 129],
  [64, 800, 160],
] as const
/** The number of unused values after each row of a result. */
const GAP = 3
const MOST = 800 * 160

/** Whether a BLAS and the kernels agree up to rounding. Old libraries fail on new processors. */
function isRight(blas: Blas, heap: WasmHeap): boolean {
  const block = heap.allocate(3 * 4 * MOST)
  const [a, b, c] = [block, block + 4 * MOST, block + 8 * MOST]
  const compute = (used: Blas | undefined, size: (typeof SIZES)[number], transposed: number) => {
    heap.blas = used
    // A product must overwrite the old values of its result, and must not change the values between rows.
    heap.floats(c, MOST).fill(NaN)
    for (const accumulates of [false, true]) {
      const [left, right] = [transposed % 2 === 1, transposed >= 2]
      const options = { stride: size[1] + GAP, accumulates }
      heap.multiply(c, { at: a, transposed: left }, { at: b, transposed: right }, size, options)
    }
    return heap.floats(c, MOST).slice()
  }
  try {
    heap.floats(a, 2 * MOST).forEach((_, i, values) => {
      values[i] = Math.sin(i * i)
    })
    return SIZES.every((size) =>
      [0, 1, 2, 3].every((transposed) => {
        const expected = compute(undefined, size, transposed)
        return compute(blas, size, transposed).every(
          (value, i) => Object.is(value, expected[i]) || Math.abs(value - expected[i]!) < 1e-4,
        )
      }),
    )
  } finally {
    heap.blas = undefined
    heap.free(block)
  }
}
