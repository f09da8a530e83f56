import type { DType, ReductionName, TypedArrayOf } from '@tsrun/distributed'
import { instantiateKernels } from '../../../packages/distributed/src/kernels/kernels.ts'
import { reductionsOf } from '../../../packages/distributed/src/reduction.ts'
import { arrayOf, dtypes, expectBits } from '../support/values.ts'
import { elements, referenceCombine, referenceDivide, referenceScale, viewOf } from './reference.ts'

const lengths = [...Array.from({ length: 135 }, (_, length) => length), 1000, 4099]
const guard = 64
const untouched = new Uint8Array(guard).fill(0xa5)

const memory = new WebAssembly.Memory({ initial: 64, maximum: 64, shared: true })
const kernels = instantiateKernels(memory)

/** Writes `values` at the byte offset and surrounds them with bytes that must not change. */
function place<D extends DType>(dtype: D, at: number, values: TypedArrayOf[D]): void {
  new Uint8Array(memory.buffer, at - guard, values.byteLength + 2 * guard).fill(0xa5)
  bytes(at, values.byteLength).set(new Uint8Array(values.buffer))
}

function bytes(at: number, length: number): Uint8Array {
  return new Uint8Array(memory.buffer, at, length)
}

function expectAt(at: number, expected: TypedArrayOf[DType]): void {
  const length = expected.byteLength
  const found = bytes(at, length).slice()
  // Comparing bytes is exact and quick; only a failure is worth a readable list of numbers.
  if (Buffer.compare(found, new Uint8Array(expected.buffer)) !== 0) {
    expect(viewOf(expected, found.buffer)).toEqual(expected)
  }
  expectBits(bytes(at - guard, guard), untouched)
  expectBits(bytes(at + length, guard), untouched)
}

/** The reductions that combine in a way of their own: premulSum is a sum. */
function opsOf(dtype: DType): ReductionName[] {
  return reductionsOf(dtype).filter((name) => name !== 'premulSum')
}

describe.each(dtypes)('%s', (dtype) => {
  describe.each(opsOf(dtype))('%s', (op) => {
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

    it('may write over either input', () => {
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

describe.each(dtypes.filter((dtype) => dtype !== 'bool'))('%s', (dtype) => {
  it.each([1, 2, 3, 7, 49])('is divided by %p at every length', (divisor) => {
    const values = elements(dtype, lengths.at(-1)!, 1)
    const quotients = referenceDivide(dtype, values, divisor)
    for (const length of lengths) {
      place(dtype, 4100, values.slice(0, length))
      kernels.divide(dtype, 4100, length, divisor)
      expectAt(4100, quotients.slice(0, length))
    }
  })
})

describe.each(['float32', 'float64', 'float16', 'bfloat16'] as const)('%s', (dtype) => {
  it.each([1, 0.5, -3, 0, 1e-7, 1e30])('is multiplied by %p at every length', (factor) => {
    const values = elements(dtype, lengths.at(-1)!, 1)
    const products = referenceScale(dtype, values, factor)
    for (const length of lengths) {
      place(dtype, 4100, values.slice(0, length))
      kernels.scale(dtype, 4100, length, factor)
      expectAt(4100, products.slice(0, length))
    }
  })
})

describe.each(['float16', 'bfloat16'] as const)('%s', (dtype) => {
  const all = arrayOf(dtype, 65_536, (i) => i)
  const partners = {
    'zero, that keeps all numbers': () => 0,
    itself: (i: number) => i,
    'its negative': (i: number) => i ^ 0x8000,
    'all others, once each': (i: number) => (i * 40_503) & 0xffff,
    'the next ones': (i: number) => (i + 1) & 0xffff,
    'those a little smaller': (i: number) => Math.max(0, i - 0x0400),
  }

  it.each(Object.entries(partners))(
    'each of its 65,536 values is combined with %s',
    (_, partner) => {
      const other = arrayOf(dtype, 65_536, partner)
      for (const op of opsOf(dtype)) {
        place(dtype, 4096, all)
        place(dtype, 1_048_576, other)
        kernels.combine(op, dtype, 2_097_152, 4096, 1_048_576, 65_536)
        const found = viewOf(all, bytes(2_097_152, 131_072).slice().buffer)
        expectBits(found, referenceCombine(op, dtype, all, other))
      }
    },
  )
})

describe('bool', () => {
  it('takes any byte but 0 for true', () => {
    const a = Uint8Array.from({ length: 256 * 256 }, (_, i) => i >> 8)
    const b = Uint8Array.from({ length: 256 * 256 }, (_, i) => i & 255)
    for (const op of opsOf('bool')) {
      place('bool', 4096, a)
      place('bool', 1_048_576, b)
      kernels.combine(op, 'bool', 4096, 4096, 1_048_576, a.length)
      expectAt(4096, referenceCombine(op, 'bool', a, b))
    }
  })
})

describe.each(['float32', 'float64'] as const)('%s specials', (dtype) => {
  // Seventeen copies fill one stride of vectors and leave a scalar tail.
  const combine = (op: ReductionName, a: number, b: number): Set<number> => {
    const view = viewOf(elements(dtype, 0, 0), memory.buffer)
    view.fill(a, 1024, 1024 + 17)
    view.fill(b, 2048, 2048 + 17)
    const at = (index: number): number => index * view.BYTES_PER_ELEMENT
    kernels.combine(op, dtype, at(4096), at(1024), at(2048), 17)
    return new Set(Array.from(view.subarray(4096, 4096 + 17), (x) => (Object.is(x, -0) ? -7 : x)))
  }

  it.each(['sum', 'product', 'min', 'max'] as const)('%s hands NaN on from both sides', (op) => {
    expect(combine(op, NaN, 1)).toEqual(new Set([NaN]))
    expect(combine(op, 1, NaN)).toEqual(new Set([NaN]))
    expect(combine(op, NaN, -Infinity)).toEqual(new Set([NaN]))
  })

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

describe('int32 specials', () => {
  const view = new Int32Array(memory.buffer)
  const limit = 2 ** 31

  it('wraps around like integer arithmetic everywhere', () => {
    view.fill(limit - 1, 1024, 1024 + 17)
    view.fill(2, 2048, 2048 + 17)
    kernels.combine('sum', 'int32', 4 * 4096, 4 * 1024, 4 * 2048, 17)
    expect(new Set(view.subarray(4096, 4096 + 17))).toEqual(new Set([-limit + 1]))
    kernels.combine('product', 'int32', 4 * 4096, 4 * 1024, 4 * 2048, 17)
    expect(new Set(view.subarray(4096, 4096 + 17))).toEqual(new Set([-2]))
  })

  it('averages exactly, cut toward zero, for any number of ranks', () => {
    const sums = [-limit, -limit + 1, -50, -49, -1, 0, 1, 48, 49, 50, 98, limit - 2, limit - 1]
    for (let ranks = 1; ranks <= 4096; ranks++) {
      const multiples = [1, 2, 1000, Math.floor((limit - 1) / ranks)].map((k) => k * ranks)
      const values = Int32Array.from([...sums, ...multiples, ...multiples.map((x) => x - 1)])
      view.set(values, 1024)
      kernels.divide('int32', 4 * 1024, values.length, ranks)
      const expected = values.map((value) => Math.trunc(value / ranks))
      expect(view.slice(1024, 1024 + values.length)).toEqual(expected)
    }
  })
})

describe('64-bit integers', () => {
  it('are compared, wrapped and cut at the ends of their range', () => {
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
      for (const op of opsOf(dtype)) {
        place(dtype, 4096, a)
        place(dtype, 8192, b)
        kernels.combine(op, dtype, 16_384, 4096, 8192, pairs.length)
        const found = viewOf(a, bytes(16_384, 8 * pairs.length).slice().buffer)
        expect(found).toEqual(referenceCombine(op, dtype, a, b))
      }
      for (const divisor of [1, 2, 3, 1000]) {
        place(dtype, 4096, a)
        kernels.divide(dtype, 4096, pairs.length, divisor)
        expectAt(4096, referenceDivide(dtype, a, divisor))
      }
    }
  })
})

it('copies bytes from any address to any other, also when the ranges overlap', () => {
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

it('reaches all of 4 GiB, and its last byte', () => {
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
