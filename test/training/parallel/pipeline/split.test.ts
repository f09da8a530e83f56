import fc from 'fast-check'
import { splitLayers } from '@tsrun/training'
import { failure } from '../support/failure.ts'

describe('splitLayers', () => {
  it('gives the remainder to the first stages', () => {
    const sizes = (layers: number, stages: number): number[] =>
      splitLayers(layers, stages).map(({ from, to }) => to - from)
    expect(sizes(16, 1)).toEqual([16])
    expect(sizes(16, 3)).toEqual([6, 5, 5])
    expect(sizes(16, 4)).toEqual([4, 4, 4, 4])
    expect(sizes(7, 4)).toEqual([2, 2, 2, 1])
    expect(sizes(4, 4)).toEqual([1, 1, 1, 1])
  })

  it('covers every layer once, in order', () => {
    for (let layers = 1; layers <= 20; layers++) {
      for (let stages = 1; stages <= layers; stages++) {
        const ranges = splitLayers(layers, stages)
        expect(ranges[0]!.from).toBe(0)
        expect(ranges.at(-1)!.to).toBe(layers)
        ranges.slice(1).forEach((range, at) => {
          expect(range.from).toBe(ranges[at]!.to)
        })
      }
    }
  })

  it('refuses more stages than layers, naming both', () => {
    expect(() => splitLayers(3, 4)).toThrow(
      failure('ERR_TSR_STAGES', /3 layers .* 4 pipeline stages/),
    )
    expect(() => splitLayers(0, 1)).toThrow(failure('ERR_TSR_ARGUMENT'))
  })

  const sizes = (costs: number[], stages: number): number[] =>
    splitLayers(costs.length, stages, { costs }).map(({ from, to }) => to - from)

  it('makes the most expensive stage as cheap as possible', () => {
    expect(sizes([1, 1, 1, 3], 2)).toEqual([3, 1])
    expect(sizes([5, 1, 1, 1, 1, 1], 2)).toEqual([1, 5])
    expect(sizes([9, 1, 1, 1], 3)).toEqual([1, 2, 1])
    expect(sizes([0, 0, 7], 3)).toEqual([1, 1, 1])
  })

  it('is the even split if all layers cost the same', () => {
    for (let layers = 1; layers <= 12; layers++) {
      for (let stages = 1; stages <= layers; stages++) {
        const costs = Array<number>(layers).fill(0.1)
        expect(splitLayers(layers, stages, { costs })).toEqual(splitLayers(layers, stages))
      }
    }
  })

  it('minimizes the largest stage, compared with every other split', () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat({ max: 20 }), { minLength: 1, maxLength: 9 }),
        fc.integer({ min: 1, max: 5 }),
        (costs, wanted) => {
          const stages = Math.min(wanted, costs.length)
          const largest = (lengths: readonly number[]): number => {
            let at = 0
            const sums = lengths.map((length) =>
              costs.slice(at, (at += length)).reduce((sum, cost) => sum + cost, 0),
            )
            return Math.max(...sums)
          }
          const all = compositions(costs.length, stages).map(largest)
          expect(largest(sizes(costs, stages))).toBe(Math.min(...all))
        },
      ),
    )
  })

  it('refuses invalid costs', () => {
    for (const costs of [[1], [1, 2, -1], [1, NaN, 2], [1, 2, Infinity]]) {
      expect(() => splitLayers(3, 2, { costs })).toThrow(
        failure('ERR_TSR_ARGUMENT', /one per layer/),
      )
    }
  })
})

function compositions(count: number, parts: number): number[][] {
  if (parts === 1) return [[count]]
  return Array.from({ length: count - parts + 1 }, (_, at) => at + 1).flatMap((first) =>
    compositions(count - first, parts - 1).map((rest) => [first, ...rest]),
  )
}
