import { tsrError } from '@tsrun/core'
import { copyHeld, type HeldValues } from '../backend/held-values.ts'
import type { Parameter } from '../model/parameter.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { firstNotFinite } from './safetensors/chunks.ts'

/** A rectangular region of a tensor: its first index and its length on each axis. */
export interface Box {
  readonly offset: readonly number[]
  readonly extent: readonly number[]
}

/** A region of a tensor that a rank holds or needs. */
export interface Part {
  /** The global name of the tensor, the same on all ranks and in every layout. */
  readonly name: string
  /** The shape of the whole tensor. */
  readonly shape: readonly number[]
  /** The region of the tensor; default: the whole tensor. */
  readonly box?: Box | undefined
  /** Restricts the part to the values [from, to) of the box, in row-major order; default: all values. */
  readonly range?: readonly [from: number, to: number] | undefined
}

/** The array classes of the values of a piece. */
export type PieceValues = Float32Array | Float64Array | Int32Array | Uint8Array

/** A part of a tensor with its values, in row-major order of the box. */
export interface Piece extends Part {
  readonly values: PieceValues
}

/** A part of a tensor with a copy of its values or a reference to them, which the caller releases. */
export interface HeldPiece extends Part {
  readonly values: PieceValues | HeldValues
}

/**
 * Provides and receives this rank's tensors of a checkpoint. Models, optimizers and sharding
 * wrappers implement this interface. The pieces of a tensor on all ranks are equal or disjoint, and
 * together form the whole tensor.
 */
export interface PieceOwner {
  /** Returns this rank's tensors. Training does not change these values while they are written. */
  pieces(): readonly HeldPiece[] | Promise<readonly HeldPiece[]>

  /**
   * Returns the parts of a checkpoint that this rank needs.
   *
   * @param names - the names of all tensors in the checkpoint. Optimizers need them, because they
   *   hold no state before their first step.
   */
  parts(names: ReadonlySet<string>): readonly Part[]

  /**
   * Receives the parts in the order in which `parts` returned them, and takes ownership of the arrays.
   * Called after all ranks have read all their parts.
   */
  load(pieces: readonly Piece[]): void | Promise<void>
}

/** Returns copies of this rank's tensors. @throws ERR_TSR_NOT_FINITE when a value is NaN or infinite */
export async function copyPieces(owner: PieceOwner): Promise<Piece[]> {
  const copies: Piece[] = []
  for (const { values, ...part } of await owner.pieces()) {
    copies.push({ ...part, values: 'read' in values ? await copyHeld(values) : values })
  }
  for (const { name, values } of copies) checkFinite(name, firstNotFinite(values))
  return copies
}

/** Throws ERR_TSR_NOT_FINITE if a NaN or infinite `value` was found. */
export function checkFinite(name: string, value: number | undefined): void {
  if (value !== undefined) throw tsrError('ERR_TSR_NOT_FINITE', { what: name, value })
}

/** The number of values in a part. */
export function partSize({ shape, box, range }: Part): number {
  return range === undefined ? sizeOf(box?.extent ?? shape) : range[1] - range[0]
}

/** Returns the part of a parameter that this rank holds, or the values [from, to) of that part. */
export function partOfParameter(
  { name, shape, shard }: Pick<Parameter, 'name' | 'shape' | 'shard'>,
  range?: readonly [from: number, to: number],
): Part {
  const selection = range === undefined ? {} : { range }
  if (shard === undefined) return { name, shape, ...selection }
  const offset = shard.shape.map((_, axis) => (axis === shard.axis ? shard.offset : 0))
  return { name, shape: shard.shape, box: { offset, extent: shape }, ...selection }
}

/** Returns the name of a state vector of a parameter, such as `optimizer/mean/layers.0.weight`. */
export function stateName(parameter: string, kind: string): string {
  return `optimizer/${kind}/${parameter}`
}

/** Inverts `stateName`. Returns undefined for the name of a parameter. */
export function parseStateName(name: string) {
  const [, kind, parameter] = /^optimizer\/([^/]+)\/(.+)$/.exec(name) ?? []
  return kind === undefined ? undefined : { kind, parameter: parameter! }
}

/**
 * Yields the overlap of two parts of one tensor as runs of values that are contiguous in both. A run
 * begins at index `from` of the first part and `to` of the second.
 */
function* commonRuns(a: Part, b: Part) {
  const [first, second] = mergeAxes(a, b)
  const lower = first.offset.map((offset, axis) => Math.max(offset, second.offset[axis]!))
  const lengths = lower.map((low, axis) => Math.min(end(first, axis), end(second, axis)) - low)
  if (lengths.some((length) => length <= 0)) return
  const [startOfA, endOfA] = rangeOf(a)
  const [startOfB, endOfB] = rangeOf(b)
  const row = lengths.pop()!
  for (const index of indices(lengths)) {
    const place = lower.map((low, axis) => low + (index[axis] ?? 0))
    const from = positionIn(first, place)
    const to = positionIn(second, place)
    const begin = Math.max(0, startOfA - from, startOfB - to)
    const stop = Math.min(row, endOfA - from, endOfB - to)
    if (stop <= begin) continue
    yield { from: from + begin - startOfA, to: to + begin - startOfB, length: stop - begin }
  }
}

/** Whether two parts of one tensor overlap. */
export function haveCommon(a: Part, b: Part): boolean {
  return commonRuns(a, b).next().done === false
}

/** Returns the range of a part within its box. */
export function rangeOf(part: Part): readonly [from: number, to: number] {
  return part.range ?? [0, partSize(part)]
}

/** Copies the values that `source` and `target` have in common. Returns their number. */
export function copyCommon(source: Piece, target: Piece): number {
  let count = 0
  for (const { from, to, length } of commonRuns(source, target)) {
    target.values.set(source.values.subarray(from, from + length), to)
    count += length
  }
  return count
}

/** Returns both boxes. Merges trailing axes that both boxes span completely, so that runs are longer. */
function mergeAxes(a: Part, b: Part) {
  // Add a first axis of length 1, so that the box of a number has an axis too.
  const shape = [1, ...a.shape]
  const boxOf = ({ box }: Part) => ({
    offset: [0, ...(box?.offset ?? a.shape.map(() => 0))],
    extent: [1, ...(box?.extent ?? a.shape)],
  })
  const boxes = [boxOf(a), boxOf(b)] as const
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

function end({ offset, extent }: Box, axis: number) {
  return offset[axis]! + extent[axis]!
}

function positionIn({ offset, extent }: Box, place: readonly number[]) {
  return place.reduce((position, at, axis) => position * extent[axis]! + at - offset[axis]!, 0)
}

/** Yields all indices below `lengths`, with the last axis fastest. Without axes, yields one empty index. */
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
