import type { ReduceOp } from '@tsrun/distributed'
import { reductionsOf } from '../../internals/distributed/algorithms.ts'
import { instantiateKernels } from '../../internals/distributed/arena.ts'
import { arrayOf } from '../support/values.ts'
import { elements, referenceCombine, viewOf } from './reference.ts'
import { bytes, describeLengths, expectAt, kernels, memory, place } from './support.ts'

// kernels.nightly.test.ts has all lengths up to 134 and all pairs of 16-bit values.
describeLengths([0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 134, 1000])

describe('a bool', () => {
  it('is true for any nonzero byte', () => {
    const a = Uint8Array.from({ length: 256 * 256 }, (_, i) => i >> 8)
    const b = Uint8Array.from({ length: 256 * 256 }, (_, i) => i & 255)
    for (const op of reductionsOf('bool')) {
      place('bool', 4096, a)
      place('bool', 1_048_576, b)
      kernels.combine(op, 'bool', 4096, 4096, 1_048_576, a.length)
      expectAt(4096, referenceCombine(op, 'bool', a, b))
    }
  })
})

describe.each(['float32', 'float64'] as const)('a reduction of %s', (dtype) => {
  // Seventeen copies fill one stride of vectors and leave a scalar tail.
  const combine = (op: ReduceOp, a: number, b: number): Set<number> => {
    const view = viewOf(elements(dtype, 0, 0), memory.buffer)
    view.fill(a, 1024, 1024 + 17)
    view.fill(b, 2048, 2048 + 17)
    const at = (index: number): number => index * view.BYTES_PER_ELEMENT
    kernels.combine(op, dtype, at(4096), at(1024), at(2048), 17)
    return new Set(Array.from(view.subarray(4096, 4096 + 17), (x) => (Object.is(x, -0) ? -7 : x)))
  }

  it.each(['sum', 'product', 'min', 'max'] as const)(
    'with %s propagates NaN from both sides',
    (op) => {
      expect(combine(op, NaN, 1)).toEqual(new Set([NaN]))
      expect(combine(op, 1, NaN)).toEqual(new Set([NaN]))
      expect(combine(op, NaN, -Infinity)).toEqual(new Set([NaN]))
    },
  )

  it('orders -0 below +0', () => {
    const negativeZero = -7
    expect(combine('min', 0, -0)).toEqual(new Set([negativeZero]))
    expect(combine('max', -0, 0)).toEqual(new Set([0]))
    expect(combine('sum', -0, -0)).toEqual(new Set([negativeZero]))
  })

  it('follows IEEE 754 at the infinities', () => {
    expect(combine('sum', Infinity, -Infinity)).toEqual(new Set([NaN]))
    expect(combine('min', -Infinity, 1)).toEqual(new Set([-Infinity]))
    expect(combine('product', -Infinity, 2)).toEqual(new Set([-Infinity]))
  })
})

describe('int32 values at the ends of the range', () => {
  const view = new Int32Array(memory.buffer)
  const limit = 2 ** 31

  it('wrap around in every reduction like integer arithmetic', () => {
    view.fill(limit - 1, 1024, 1024 + 17)
    view.fill(2, 2048, 2048 + 17)
    kernels.combine('sum', 'int32', 4 * 4096, 4 * 1024, 4 * 2048, 17)
    expect(new Set(view.subarray(4096, 4096 + 17))).toEqual(new Set([-limit + 1]))
    kernels.combine('product', 'int32', 4 * 4096, 4 * 1024, 4 * 2048, 17)
    expect(new Set(view.subarray(4096, 4096 + 17))).toEqual(new Set([-2]))
  })
})

describe('64-bit integers', () => {
  it('are compared correctly, and wrap at the ends of their range', () => {
    const ends = [
      0n,
      1n,
      2n,
      2n ** 63n - 1n,
      2n ** 63n,
      2n ** 63n + 1n,
      2n ** 64n - 2n,
      2n ** 64n - 1n,
    ]
    const pairs = ends.flatMap((a) => ends.map((b) => [a, b] as const))
    for (const dtype of ['int64', 'uint64'] as const) {
      const a = arrayOf(dtype, pairs.length, (i) => pairs[i]![0])
      const b = arrayOf(dtype, pairs.length, (i) => pairs[i]![1])
      for (const op of reductionsOf(dtype)) {
        place(dtype, 4096, a)
        place(dtype, 8192, b)
        kernels.combine(op, dtype, 16_384, 4096, 8192, pairs.length)
        const found = viewOf(a, bytes(16_384, 8 * pairs.length).slice().buffer)
        expect(found).toEqual(referenceCombine(op, dtype, a, b))
      }
    }
  })
})

it('the copy kernel copies from any address to any other, also if the ranges overlap', () => {
  const source = Uint8Array.from({ length: 1000 }, (_, i) => i % 251)
  for (const [to, from] of [
    [8192, 4096],
    [8193, 4100],
    [4096, 4103],
    [4103, 4096],
  ] as const) {
    for (const length of [0, 1, 7, 64, 1000]) {
      new Uint8Array(memory.buffer, 4000, 8000).fill(0xa5)
      bytes(from, length).set(source.subarray(0, length))
      kernels.copy(to, from, length)
      expect(bytes(to, length).slice()).toEqual(source.slice(0, length))
      if (to > from) expect(bytes(to + length, 1)[0]).toBe(0xa5)
    }
  }
})

it('the kernels can address all of 4 GiB, including the last byte', () => {
  const pages = 65_536
  const large = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })
  const kernels = instantiateKernels(large)
  const view = new Float32Array(large.buffer)
  const last = view.length - 19
  view.fill(1.5, last)
  view.fill(2, 3 * 2 ** 28, 3 * 2 ** 28 + 19)
  kernels.combine('sum', 'float32', 4 * last, 4 * last, 3 * 2 ** 30, 19)
  kernels.scale('float32', 4 * last, 19, 2)
  expect(view.subarray(last)).toEqual(new Float32Array(19).fill(7))
})
