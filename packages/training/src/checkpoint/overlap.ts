import { partSize, type Box, type Part, type Piece } from './piece.ts'

/** Values that two parts have in common and that lie one behind the other in both. */
export interface Run {
  /** Index of the first one in the values of the one part, and of the other. */
  readonly from: number
  readonly to: number
  readonly length: number
}

/** Where two parts of one tensor overlap, in row-major order. */
export function* commonRuns(a: Part, b: Part): Generator<Run> {
  const [first, second] = mergeAxes(a, b)
  const lower = first.offset.map((offset, axis) => Math.max(offset, second.offset[axis]!))
  const lengths = lower.map((low, axis) => Math.min(end(first, axis), end(second, axis)) - low)
  if (lengths.some((length) => length <= 0)) return
  const ranges = [a.range ?? [0, partSize(a)], b.range ?? [0, partSize(b)]] as const
  const row = lengths.pop()!
  for (const index of indices(lengths)) {
    const place = lower.map((low, axis) => low + (index[axis] ?? 0))
    const from = positionIn(first, place)
    const to = positionIn(second, place)
    const begin = Math.max(0, ranges[0][0] - from, ranges[1][0] - to)
    const stop = Math.min(row, ranges[0][1] - from, ranges[1][1] - to)
    if (stop <= begin) continue
    const [start, target] = [from + begin - ranges[0][0], to + begin - ranges[1][0]]
    yield { from: start, to: target, length: stop - begin }
  }
}

/** Copies what a piece has of another one; returns the number of values. */
export function copyCommon(source: Piece, target: Piece): number {
  let count = 0
  for (const { from, to, length } of commonRuns(source, target)) {
    target.values.set(source.values.subarray(from, from + length), to)
    count += length
  }
  return count
}

/** The boxes, with trailing axes that both have in full made one with the axis before: longer runs. */
function mergeAxes(a: Part, b: Part): [Box, Box] {
  const shape = a.shape.length === 0 ? [1] : [...a.shape]
  const boxes = [a, b].map(({ box }) => ({
    offset: box === undefined || box.offset.length === 0 ? shape.map(() => 0) : [...box.offset],
    extent: box === undefined || box.extent.length === 0 ? [...shape] : [...box.extent],
  })) as [{ offset: number[]; extent: number[] }, { offset: number[]; extent: number[] }]
  while (shape.length > 1 && boxes.every(({ extent }) => extent.at(-1) === shape.at(-1))) {
    const length = shape.pop()!
    shape[shape.length - 1]! *= length
    for (const { offset, extent } of boxes) {
      offset.pop()
      extent.pop()
      offset[offset.length - 1]! *= length
      extent[extent.length - 1]! *= length
    }
  }
  return boxes
}

function end({ offset, extent }: Box, axis: number): number {
  return offset[axis]! + extent[axis]!
}

/** Row-major position in the box of a place in the whole. */
function positionIn({ offset, extent }: Box, place: readonly number[]): number {
  return place.reduce((position, at, axis) => position * extent[axis]! + at - offset[axis]!, 0)
}

/** All indices below `lengths`, the last axis fastest; one empty index for no axes. */
function* indices(lengths: readonly number[]): Generator<readonly number[]> {
  const index = lengths.map(() => 0)
  for (;;) {
    yield index
    let axis = lengths.length - 1
    for (; axis >= 0; axis--) {
      index[axis]!++
      if (index[axis]! < lengths[axis]!) break
      index[axis] = 0
    }
    if (axis < 0) return
  }
}
