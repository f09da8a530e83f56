import fc from 'fast-check'
import type { Part, Piece } from '@tsrun/training'
import { copyCommon } from '../../internals/training.ts'

/** The place in the whole of each value of a part, found the slow way. */
function placesOf({ shape, box, range }: Part): number[] {
  const { offset, extent } = box ?? { offset: shape.map(() => 0), extent: shape }
  let places = [0]
  for (const [axis, length] of shape.entries()) {
    places = places.flatMap((place) =>
      Array.from({ length: extent[axis]! }, (_, i) => place * length + offset[axis]! + i),
    )
  }
  return range === undefined ? places : places.slice(...range)
}

const interval = (length: number) =>
  fc
    .tuple(fc.nat(length), fc.nat(length))
    .map(([a, b]): [number, number] => [Math.min(a, b), Math.max(a, b)])

const part = (shape: number[]): fc.Arbitrary<Part> =>
  fc
    .record({
      box: fc.option(fc.tuple(...shape.map(interval)), { nil: undefined }),
      cut: fc.option(fc.tuple(fc.nat(1000), fc.nat(1000)), { nil: undefined }),
    })
    .map(({ box, cut }) => {
      const whole = { name: 'w', shape }
      const sides = box
      const boxed: Part =
        sides === undefined
          ? whole
          : {
              ...whole,
              box: { offset: sides.map(([a]) => a), extent: sides.map(([a, b]) => b - a) },
            }
      if (cut === undefined) return boxed
      const size = placesOf(boxed).length
      const [a, b] = cut.map((at) => at % (size + 1)) as [number, number]
      return { ...boxed, range: [Math.min(a, b), Math.max(a, b)] }
    })

const pieces = fc
  .array(fc.integer({ min: 1, max: 5 }), { maxLength: 4 })
  .chain((shape) => fc.tuple(part(shape), part(shape)))

it('a copy between two parts of a tensor copies exactly the values that they share', () => {
  fc.assert(
    fc.property(pieces, ([from, to]) => {
      const held = placesOf(from)
      const source: Piece = { ...from, values: Float32Array.from(held) }
      const wanted = placesOf(to)
      const target: Piece = { ...to, values: new Float32Array(wanted.length).fill(-1) }
      const common = new Set(held)
      const expected = wanted.map((place) => (common.has(place) ? place : -1))
      expect(copyCommon(source, target)).toBe(expected.filter((place) => place >= 0).length)
      expect([...target.values]).toEqual(expected)
    }),
    { numRuns: 1000 },
  )
})
