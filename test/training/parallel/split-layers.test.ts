import { splitLayers } from '../../../packages/training/src/parallel/pipeline/split-layers.ts'
import { failure } from './support/failure.ts'

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
})
