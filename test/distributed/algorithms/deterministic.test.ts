import {
  runWorld,
  algorithmsOf,
  type DType,
  type ProcessGroup,
  type TypedArrayOf,
} from '@tsrun/distributed'
import { combine, encode, scaled, type Element } from '../support/arithmetic.ts'
import { arrayOf, expectBits, newArray, sameBits } from '../support/values.ts'

/** Numbers of many magnitudes, whose sum depends on the order of adding. */
function inputOf<D extends DType>(dtype: D, rank: number, length: number): TypedArrayOf[D] {
  return remembered([dtype, rank, length].join(' '), () =>
    arrayOf(dtype, length, (i) =>
      encode(dtype, Math.sin((i + 1) * (rank + 1)) * 10 ** ((i * 3 + rank) % 5)),
    ),
  )
}

const computed = new Map<string, TypedArrayOf[DType]>()

/** A copy of what is computed once. */
function remembered<D extends DType>(key: string, compute: () => TypedArrayOf[D]) {
  const values = computed.get(key) ?? compute()
  computed.set(key, values)
  return values.slice() as TypedArrayOf[D]
}

/** ((r0 + r1) + r2) + ... */
function folded<D extends DType>(
  dtype: D,
  op: 'sum' | 'avg',
  size: number,
  length: number,
): TypedArrayOf[D] {
  return remembered([dtype, op, size, length].join(' '), () => {
    const inputs = Array.from({ length: size }, (_, rank) => inputOf(dtype, rank, length))
    return arrayOf(dtype, length, (i) => {
      const elements = inputs.map((input): Element => input[i]!)
      const sum = elements.reduce((a, b) => combine(dtype, op, a, b))
      return op === 'avg' ? scaled(dtype, sum, 1 / size) : sum
    })
  })
}

const dtypes = ['float32', 'float64', 'float16', 'bfloat16'] as const
const lengths = [1, 17, 700, 20_001]

async function everywhere(
  run: (group: ProcessGroup, dtype: (typeof dtypes)[number], length: number) => Promise<void>,
): Promise<void> {
  for (const size of [2, 3, 5]) {
    await runWorld({ size, seed: size }, async (group) => {
      for (const [i, dtype] of dtypes.entries()) {
        for (const length of i === 0 ? lengths : lengths.slice(0, 3)) {
          await run(group, dtype, length)
        }
      }
    })
  }
}

const op = 'sum'
const deterministic = true

describe('the option deterministic', () => {
  it.each(algorithmsOf('allReduce'))(
    'makes allReduce by %s fold in rank order',
    async (algorithm) => {
      await everywhere(async (group, dtype, length) => {
        const buffer = inputOf(dtype, group.rank, length)
        await group.allReduce(buffer, { dtype, algorithm, deterministic })
        expectBits(buffer, folded(dtype, op, group.size, length))
      })
    },
  )

  it.each(algorithmsOf('reduce'))('makes reduce by %s fold in rank order', async (algorithm) => {
    await everywhere(async (group, dtype, length) => {
      const root = length % group.size
      const buffer = inputOf(dtype, group.rank, length)
      await group.reduce(buffer, root, { op: 'avg', dtype, algorithm, deterministic })
      if (group.rank !== root) return
      expectBits(buffer, folded(dtype, 'avg', group.size, length))
    })
  })

  it.each(algorithmsOf('reduceScatter'))(
    'makes reduceScatter by %s fold in rank order, also into its own input',
    async (algorithm) => {
      await everywhere(async (group, dtype, length) => {
        const { rank, size } = group
        const input = inputOf(dtype, rank, length * size)
        const output = newArray(dtype, length)
        const options = { dtype, algorithm, deterministic }
        await group.reduceScatter(output, input, options)
        const all = folded(dtype, op, size, length * size)
        const expected = all.subarray(rank * length, (rank + 1) * length)
        expectBits(output, expected)
        expectBits(input, inputOf(dtype, rank, length * size))
        const inPlace = group.alloc(dtype, length * size)
        ;(inPlace as Uint16Array).set(input)
        const own = inPlace.subarray(rank * length, (rank + 1) * length)
        await group.reduceScatter(own, inPlace, options)
        expectBits(own, expected)
        group.free(inPlace)
      })
    },
  )

  it('makes allReduceCoalesced fold each buffer in rank order', async () => {
    await everywhere(async (group, dtype, length) => {
      const buffers = [length, 3].map((each) => inputOf(dtype, group.rank, each))
      await group.allReduceCoalesced(buffers, { dtype, deterministic })
      for (const buffer of buffers) {
        expectBits(buffer, folded(dtype, op, group.size, buffer.length))
      }
    })
  })

  it('is necessary, because without it the algorithms give different bits', async () => {
    const results = await runWorld({ size: 4, seed: 1 }, async (group) => {
      const input = inputOf('float32', group.rank, 1000)
      const [a, b] = [input.slice(), input.slice()]
      await group.allReduce(a, { algorithm: 'ring' })
      await group.allReduce(b, { algorithm: 'recursive-doubling' })
      return sameBits(a, b)
    })
    expect(results).toEqual([false, false, false, false])
  })
})
