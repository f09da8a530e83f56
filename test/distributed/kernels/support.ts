import type { DType, TypedArrayOf } from '@tsrun/distributed'
import { instantiateKernels } from '../../internals/distributed/arena.ts'
import { reductionsOf } from '../../internals/distributed/algorithms.ts'
import { arrayOf, dtypes, expectBits } from '../support/values.ts'
import { elements, referenceCombine, referenceScale, viewOf } from './reference.ts'

const guard = 64
const untouched = new Uint8Array(guard).fill(0xa5)

export const memory = new WebAssembly.Memory({ initial: 64, maximum: 64, shared: true })
export const kernels = instantiateKernels(memory)

/** Writes `values` at the byte offset and surrounds them with bytes that must not change. */
export function place<D extends DType>(dtype: D, at: number, values: TypedArrayOf[D]): void {
  new Uint8Array(memory.buffer, at - guard, values.byteLength + 2 * guard).fill(0xa5)
  bytes(at, values.byteLength).set(new Uint8Array(values.buffer))
}

export function bytes(at: number, length: number): Uint8Array {
  return new Uint8Array(memory.buffer, at, length)
}

export function expectAt(at: number, expected: TypedArrayOf[DType]): void {
  const length = expected.byteLength
  const found = bytes(at, length).slice()
  // Comparing bytes is exact and quick; only a failure is worth a readable list of numbers.
  if (Buffer.compare(found, new Uint8Array(expected.buffer)) !== 0) {
    expect(viewOf(expected, found.buffer)).toEqual(expected)
  }
  expectBits(bytes(at - guard, guard), untouched)
  expectBits(bytes(at + length, guard), untouched)
}

/** Combines and scales arrays of these lengths, at several alignments. */
export function describeLengths(lengths: readonly number[]): void {
  describe.each(dtypes)('%s', (dtype) => {
    describe.each(reductionsOf(dtype))('%s', (op) => {
      it('equals the scalar reference at every length and alignment', () => {
        const longest = lengths.at(-1)!
        const [allOfA, allOfB] = [elements(dtype, longest, 1), elements(dtype, longest, 2)]
        const results = referenceCombine(op, dtype, allOfA, allOfB)
        const before = elements(dtype, longest, 3)
        for (const length of lengths) {
          const a = allOfA.slice(0, length)
          const b = allOfB.slice(0, length)
          const expected = results.slice(0, length)
          for (const shift of [0, 4, 8, 12, 20].map((bytes) => bytes + (length % 2))) {
            const [out, atA, atB] = [4096 + shift, 1_048_576 + 2 * shift, 2_097_152 + 3 * shift]
            place(dtype, out, before.slice(0, length))
            place(dtype, atA, a)
            place(dtype, atB, b)
            kernels.combine(op, dtype, out, atA, atB, length)
            expectAt(out, expected)
            expectAt(atA, a)
            expectAt(atB, b)
          }
        }
      })

      it('may write its result over either input', () => {
        for (const length of [1, 16, 70, 135]) {
          for (const outIsA of [true, false]) {
            const a = elements(dtype, length, 1)
            const b = elements(dtype, length, 2)
            place(dtype, 4096, a)
            place(dtype, 8192, b)
            const out = outIsA ? 4096 : 8192
            kernels.combine(op, dtype, out, 4096, 8192, length)
            expectAt(out, referenceCombine(op, dtype, a, b))
          }
        }
      })
    })
  })

  describe.each(['float32', 'float64', 'float16', 'bfloat16'] as const)('%s', (dtype) => {
    it.each([1, 0.5, 1 / 7, 1 / 49, -3, 0, 1e-7, 1e30])(
      'is multiplied by %p at every length',
      (factor) => {
        const values = elements(dtype, lengths.at(-1)!, 1)
        const products = referenceScale(dtype, values, factor)
        for (const length of lengths) {
          place(dtype, 4100, values.slice(0, length))
          kernels.scale(dtype, 4100, length, factor)
          expectAt(4100, products.slice(0, length))
        }
      },
    )
  })
}

/** For each of the 65,536 values of 16 bits, another one. */
const partners = {
  'zero, that keeps all numbers': () => 0,
  itself: (i: number) => i,
  'its negative': (i: number) => i ^ 0x8000,
  'all others, once each': (i: number) => (i * 40_503) & 0xffff,
  'the next ones': (i: number) => (i + 1) & 0xffff,
  'those a little smaller': (i: number) => Math.max(0, i - 0x0400),
}

/** Combines all values of the 16-bit formats with others. */
export function describePartners(...names: readonly (keyof typeof partners)[]): void {
  describe.each(['float16', 'bfloat16'] as const)('%s', (dtype) => {
    const all = arrayOf(dtype, 65_536, (i) => i)

    it.each(names)('combines each of its 65,536 values with %s', (name) => {
      const other = arrayOf(dtype, 65_536, partners[name])
      for (const op of reductionsOf(dtype)) {
        place(dtype, 4096, all)
        place(dtype, 1_048_576, other)
        kernels.combine(op, dtype, 2_097_152, 4096, 1_048_576, 65_536)
        const found = viewOf(all, bytes(2_097_152, 131_072).slice().buffer)
        expectBits(found, referenceCombine(op, dtype, all, other))
      }
    })
  })
}
