import { runWorld } from '@tsrun/distributed'
import { arrayOf, expectBits } from '../support/values.ts'
import { describeCollectives } from './support/collectives.ts'

// All other sizes up to 9 are in collectives.nightly.test.ts.
describeCollectives([1, 3])

describe('the results of collectives', () => {
  it.each(['ring', 'recursive-doubling'] as const)(
    'have the same bits on all ranks if floats are rounded (%s)',
    async (algorithm) => {
      for (const size of [2, 3, 4, 5, 7, 8]) {
        const results = await runWorld({ size, seed: size }, async (group) => {
          const buffer = new Float32Array(3001)
          for (let i = 0; i < buffer.length; i++) {
            buffer[i] = Math.sin(i * (group.rank + 1)) * 10 ** (i % 13)
          }
          const own = buffer.slice()
          await group.allReduce(buffer, { algorithm })
          return { buffer, own }
        })
        const [first] = results
        for (const { buffer } of results) expectBits(buffer, first!.buffer)
        const isClose = first!.buffer.every((found, i) => {
          const terms = results.map(({ own }) => own[i]!)
          const sum = terms.reduce((a, b) => a + b)
          const scale = terms.reduce((a, b) => a + Math.abs(b), 0)
          return Math.abs(found - sum) <= scale * size * 2 ** -23
        })
        expect(isClose).toBe(true)
      }
    },
  )

  it.each(['ring', 'recursive-doubling', 'halving-doubling', 'direct'] as const)(
    'have the same bits on all ranks if elements are NaN, of any sign and payload (%s)',
    async (algorithm) => {
      const special = [0x7fc00001, 0xffc00002, 0x7f800000, 0xff800000, 0x7f800001, 0x3f800000]
      for (const size of [2, 3, 4, 5]) {
        for (const op of ['sum', 'product', 'max', 'min'] as const) {
          const results = await runWorld({ size, seed: size }, async (group) => {
            const bits = Uint32Array.from(
              { length: 1003 },
              (_, i) => special[(7 * i + 5 * group.rank * (1 + (i >> 3))) % special.length]!,
            )
            await group.allReduce(new Float32Array(bits.buffer), { algorithm, op })
            return bits
          })
          for (const bits of results) expect(bits).toEqual(results[0])
        }
      }
    },
  )

  it('are right if allGather takes as input the slice of the rank in the output', async () => {
    await runWorld({ size: 4, seed: 3 }, async (group) => {
      const output = group.alloc('float64', 4 * 5000)
      const input = output.subarray(group.rank * 5000, (group.rank + 1) * 5000)
      input.fill(group.rank)
      await group.allGather(output, input)
      expectBits(
        output,
        arrayOf('float64', 4 * 5000, (i) => Math.floor(i / 5000)),
      )
    })
  })

  it('do not mix if many collectives are in progress at once', async () => {
    await runWorld({ size: 5, seed: 11 }, async (group) => {
      const buffers = Array.from({ length: 60 }, (_, i) =>
        new Float64Array(i % 7 === 0 ? 40_000 : 10 * i).fill(i + group.rank),
      )
      const works = buffers.map((buffer, i) =>
        i % 2 === 0 ? group.allReduce(buffer) : group.broadcast(buffer, i % 5),
      )
      // awaited from the last to the first
      for (const work of works.reverse()) await work
      for (const [i, buffer] of buffers.entries()) {
        const expected = i % 2 === 0 ? 5 * i + 10 : i + (i % 5)
        expect(buffer.every((value) => value === expected)).toBe(true)
      }
    })
  })
})
