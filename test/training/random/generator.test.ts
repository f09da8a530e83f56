import { generator, uniform } from '@tsrun/training'
import { xoshiro128 } from '../../internals/training.ts'

const draw = (name: string, seed: number, count: number) => {
  const next = generator(name, seed)
  return Array.from({ length: count }, next)
}

it('the random generator is xoshiro128**', () => {
  // What the authors' C code gives from the state 1, 2, 3, 4.
  const next = xoshiro128([1, 2, 3, 4])
  expect(Array.from({ length: 10 }, next)).toEqual([
    11520, 0, 5927040, 70819200, 2031721883, 1637235492, 1287239034, 3734860849, 3729100597,
    4258142804,
  ])
})

describe('generator', () => {
  it('repeats its stream for the same name and seed, on every machine', () => {
    expect(draw('layers.0.weight', 0, 4)).toEqual([643711908, 1338607965, 3946247160, 914865004])
    expect(draw('layers.0.weight', 0, 4)).toEqual(draw('layers.0.weight', 0, 4))
  })

  it('has a different stream for each name and seed', () => {
    const streams = [
      ...Array.from({ length: 50 }, (_, seed) => draw('a', seed, 3)),
      ...Array.from({ length: 50 }, (_, i) => draw(`layers.${String(i)}.weight`, 0, 3)),
      draw('1:a', 1, 3),
    ]
    expect(new Set(streams.flat()).size).toBe(3 * streams.length)
  })

  it('is uniform in [0, 1), without a drift from one draw to the next', () => {
    const next = generator('uniformity', 3)
    const values = Array.from({ length: 100_000 }, () => uniform(next))
    expect(values.every((value) => value >= 0 && value < 1)).toBe(true)
    const buckets = new Array<number>(100).fill(0)
    for (const value of values) buckets[Math.floor(value * 100)]! += 1
    const chiSquare = buckets.reduce((sum, count) => sum + (count - 1000) ** 2 / 1000, 0)
    // 99 degrees of freedom: mean 99, deviation 14.
    expect(chiSquare).toBeLessThan(160)
    const product = values
      .slice(1)
      .reduce((sum, value, i) => sum + (value - 0.5) * (values[i]! - 0.5), 0)
    expect(Math.abs((product * 12) / values.length)).toBeLessThan(0.02)
  })
})
