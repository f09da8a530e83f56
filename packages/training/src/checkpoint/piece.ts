import type { Parameter } from '../model/parameter.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'

/** A box of a tensor: its first index and its length on each axis. */
export interface Box {
  readonly offset: readonly number[]
  readonly extent: readonly number[]
}

/** The values of a tensor that a rank holds or needs. */
export interface Part {
  /** The global name, the same on all ranks and in every layout. */
  readonly name: string
  /** The shape of the whole tensor. */
  readonly shape: readonly number[]
  /** Default: the whole tensor. */
  readonly box?: Box
  /** Only the values [from, to) of the box, in row-major order; default: all. */
  readonly range?: readonly [from: number, to: number]
}

export type PieceValues = Float32Array | Float64Array | Int32Array | Uint8Array

/** A part with its values, in row-major order of the box. */
export interface Piece extends Part {
  readonly values: PieceValues
}

/**
 * Owns tensors that checkpoints contain. Models, optimizers and wrappers that shard them provide and
 * receive their part of a checkpoint through this interface. On all ranks together, the pieces of a
 * tensor are equal or disjoint, and form the whole tensor.
 */
export interface PieceOwner {
  /** Returns a copy of this rank's tensors, which does not change while it is written. */
  pieces(): readonly Piece[] | Promise<readonly Piece[]>

  /**
   * Returns the parts of a checkpoint that this rank needs.
   *
   * @param names - the names of all tensors in the checkpoint, for owners such as optimizers, which hold
   *   nothing before their first step
   * @param isStrict - if false, may skip tensors that the checkpoint lacks, such as buffers; default
   *   true
   */
  parts(names: ReadonlySet<string>, isStrict?: boolean): readonly Part[]

  /**
   * Receives the requested parts, in the same order, and becomes the owner of the arrays. Called after
   * all ranks have read all their parts.
   */
  load(pieces: readonly Piece[]): void | Promise<void>
}

export function partSize({ shape, box, range }: Part): number {
  return range === undefined ? sizeOf(box?.extent ?? shape) : range[1] - range[0]
}

/** The part of a parameter that this rank holds. @param range - only its values [from, to) */
export function partOfParameter(
  { name, shape, shard }: Pick<Parameter, 'name' | 'shape' | 'shard'>,
  range?: readonly [from: number, to: number],
): Part {
  const selection = range === undefined ? {} : { range }
  if (shard === undefined) return { name, shape, ...selection }
  const offset = shard.shape.map((_, axis) => (axis === shard.axis ? shard.offset : 0))
  return { name, shape: shard.shape, box: { offset, extent: shape }, ...selection }
}

/** The name of a state of an optimizer for a parameter, as in `optimizer/mean/layers.0.weight`. */
export function stateName(parameter: string, kind: string): string {
  return `optimizer/${kind}/${parameter}`
}

export function isStateName(name: string): boolean {
  return name.startsWith('optimizer/')
}

/** The inverse of `stateName`; undefined for the name of a parameter. */
export function parseStateName(
  name: string,
): { readonly parameter: string; readonly kind: string } | undefined {
  const [, kind, parameter] = /^optimizer\/([^/]+)\/(.+)$/.exec(name) ?? []
  return kind === undefined ? undefined : { kind, parameter: parameter! }
}

/** A range of values in the overlap of two parts, contiguous in both. */
export interface Run {
  /** The index in the first part at which the range starts. */
  readonly from: number
  /** The index in the second part at which the range starts. */
  readonly to: number
  readonly length: number
}

/** Yields the overlap of two parts of one tensor, in row-major order. */
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

/** Copies the values that `source` and `target` have in common. @returns their number */
export function copyCommon(source: Piece, target: Piece): number {
  let count = 0
  for (const { from, to, length } of commonRuns(source, target)) {
    target.values.set(source.values.subarray(from, from + length), to)
    count += length
  }
  return count
}

/** Returns both boxes, merging trailing axes that both span completely, so that runs are longer. */
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

function positionIn({ offset, extent }: Box, place: readonly number[]): number {
  return place.reduce((position, at, axis) => position * extent[axis]! + at - offset[axis]!, 0)
}

/** Yields all indices below `lengths`, last axis fastest; without axes, one empty index. */
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
