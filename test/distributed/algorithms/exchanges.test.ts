import { jest } from '@jest/globals'
import { runWorld } from '@tsrun/distributed'
import { expectBits, fill, newArray, reduced } from '../support/values.ts'
import { describeExchanges } from './support/exchanges.ts'

jest.setTimeout(300_000)

// All other sizes up to 9 are in exchanges.nightly.test.ts.
describeExchanges([1, 3])

it.each(['direct', 'ring', 'halving-doubling'] as const)(
  'allReduce of several blocks and segments by %s equals the reference',
  async (algorithm) => {
    await runWorld({ size: 3, seed: 1 }, async (group) => {
      for (const count of [200_000, 1_000_003]) {
        const buffer = fill(group.alloc('float32', count), 'float32', group.rank)
        await group.allReduce(buffer, { algorithm })
        expectBits(buffer, reduced('float32', 'sum', 3, count))
        group.free(buffer)
      }
    })
  },
)

it('reduce and reduceScatter of several blocks and segments by direct equal the reference', async () => {
  const count = 900_000
  const expected = reduced('float32', 'sum', 3, count)
  await runWorld({ size: 3, seed: 1 }, async (group) => {
    const { rank } = group
    const input = fill(group.alloc('float32', count), 'float32', rank)
    const output = group.alloc('float32', count / 3)
    await group.reduceScatter(output, input, { algorithm: 'direct' })
    expectBits(output, expected.slice((rank * count) / 3, ((rank + 1) * count) / 3))
    await group.reduce(input, 1, { algorithm: 'direct' })
    if (rank === 1) expectBits(input, expected)
  })
})

it('allReduce of large buffers by hierarchical equals the reference on one host', async () => {
  await runWorld({ size: 2, hosts: [0, 0] }, async (group) => {
    const buffer = group.alloc('float32', 4_500_000).fill(group.rank + 1)
    await group.allReduce(buffer, { algorithm: 'hierarchical', op: 'avg' })
    expect(buffer.every((element) => element === 1.5)).toBe(true)
  })
})

it('allToAllV accepts an empty input that begins where the output does', async () => {
  const received = await runWorld({ size: 3 }, async (group) => {
    const buffer = group.alloc('int32', 4)
    const isGiver = group.rank === 0
    const [giver, taker] = [
      [0, 4, 4],
      [0, 0, 0],
    ]
    const [input, output] = isGiver
      ? [Int32Array.of(1, 2, 3, 4, 5, 6, 7, 8), buffer.subarray(0, 0)]
      : [buffer.subarray(0, 0), buffer]
    const [coming, sent] = isGiver ? [taker, giver] : [[4, 0, 0], taker]
    await group.allToAllV(output, input, coming, sent)
    return [...output]
  })
  expect(received).toEqual([[], [1, 2, 3, 4], [5, 6, 7, 8]])
})

it('reduce and broadcast of several segments by chain equal the reference', async () => {
  const count = 900_000
  const expected = reduced('float32', 'sum', 3, count)
  await runWorld({ size: 3, seed: 1 }, async (group) => {
    const { rank } = group
    const buffer = fill(group.alloc('float32', count), 'float32', rank)
    await group.reduce(buffer, 1, { algorithm: 'chain' })
    expectBits(buffer, rank === 1 ? expected : fill(newArray('float32', count), 'float32', rank))
    await group.broadcast(buffer, 1, { algorithm: 'chain' })
    expectBits(buffer, expected)
  })
})
