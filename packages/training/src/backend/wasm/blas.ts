import { createLogger, host, messageOf } from '@tsrun/core'
import { blasLibraries, openBlas, type Blas as Library } from '#kernels'
import type { Products, WasmHeap } from './heap.ts'

/** The matrix products of a BLAS library on the memory of the wasm backend, without copies. */
class Blas implements Products {
  readonly name: string
  readonly #library: Library
  readonly #memory: WebAssembly.Memory
  #buffer: ArrayBufferLike | undefined
  #base = 0

  constructor(library: Library, memory: WebAssembly.Memory) {
    const { kernels } = library
    this.name = `${library.library}${kernels === undefined ? '' : ` (${kernels})`}`
    this.#library = library
    this.#memory = memory
  }

  multiply(
    transposeA: boolean,
    transposeB: boolean,
    [m, n, k]: readonly [m: number, n: number, k: number],
    a: number,
    aStride: number,
    b: number,
    bStride: number,
    beta: number,
    c: number,
    cStride: number,
  ): void {
    const { buffer } = this.#memory
    // Growing the memory may move it, and always replaces the buffer.
    if (buffer !== this.#buffer) {
      this.#buffer = buffer
      this.#base = this.#library.addressOf(new Uint8Array(buffer, 0, 1))
    }
    const base = this.#base
    this.#library.multiply(
      transposeA,
      transposeB,
      m,
      n,
      k,
      base + a,
      aStride,
      base + b,
      bStride,
      beta,
      base + c,
      cStride,
    )
  }
}

/**
 * Finds a BLAS that computes the same products as the kernels: the one that TSRUN_BLAS names; else the
 * one that `tsrun setup blas` has installed; else one of the system.
 *
 * @returns undefined if there is none, or with TSRUN_BLAS=off
 * @throws Error if the library that TSRUN_BLAS names cannot be used
 */
export function findBlas(heap: WasmHeap): Products | undefined {
  const named = host.env['TSRUN_BLAS'] ?? ''
  if (named === 'off') return undefined
  for (const name of named === '' ? librariesHere() : [named]) {
    const library = openBlas(name)
    const isFound = typeof library !== 'string'
    const blas = isFound ? new Blas(library, heap.backend.wasm.asm.memory) : undefined
    if (blas !== undefined && isRight(blas, heap)) return blas
    const problem = isFound ? 'its products are wrong' : library
    if (named !== '') throw new Error(`TSRUN_BLAS is ${named}: ${problem}`)
    if (isFound) createLogger('training').warn({ library: name }, `${name} is not used: ${problem}`)
  }
  return undefined
}

function librariesHere(): readonly string[] {
  try {
    return blasLibraries()
  } catch (error) {
    createLogger('training').warn({ reason: messageOf(error) }, 'no BLAS is used')
    return []
  }
}

/** Sizes [m, n, k] that reach the unpacked and the packed code of a BLAS. */
const SIZES = [
  [1, 67, 33],
  [19, 1, 130],
  [33, 65, 129],
  [130, 140, 150],
] as const
/** Unused values after each row of a result. */
const GAP = 3
const MOST = 150 * 150

/**
 * Whether products equal those of the kernels, up to rounding. Old libraries compute wrong values on
 * processors that they do not know.
 */
function isRight(blas: Products, heap: WasmHeap): boolean {
  const block = heap.allocate(3 * 4 * MOST)
  const [a, b, c] = [block, block + 4 * MOST, block + 8 * MOST]
  const compute = (
    used: Products | undefined,
    size: (typeof SIZES)[number],
    transposed: number,
  ) => {
    heap.blas = used
    // A product must ignore what its result contained, and leave what is between the rows.
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
