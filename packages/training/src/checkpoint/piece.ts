import { sizeOf } from '../backend/shape.ts'
import type { Parameter } from '../model/parameter.ts'

/** A box of a whole tensor: on every axis where it begins, and its length. */
export interface Box {
  readonly offset: readonly number[]
  readonly extent: readonly number[]
}

/** Which values of a whole tensor a rank holds, or wants. */
export interface Part {
  /** Global name: the same on all ranks and in every layout. */
  readonly name: string
  /** Of the whole tensor. */
  readonly shape: readonly number[]
  /** Default: the whole. */
  readonly box?: Box
  /** Of the box (or the whole) only the values [from, to), in its row-major order; default: all. */
  readonly range?: readonly [from: number, to: number]
}

export type PieceValues = Float32Array | Float64Array | Int32Array | Uint8Array

/** A part and its values, in row-major order of the box. */
export interface Piece extends Part {
  readonly values: PieceValues
}

/**
 * Whoever holds state that is saved: the one form in which parameters, optimizers and whatever shares
 * them among ranks hand over their part and take it back. Pieces of one name are equal or disjoint on
 * all ranks, and together the whole.
 */
export interface PieceOwner {
  /** A copy of what this rank holds: nobody changes the arrays while they are written. */
  pieces(): readonly Piece[] | Promise<readonly Piece[]>

  /**
   * What this rank wants of a checkpoint.
   *
   * @param names - of all tensors that are in it: for owners that hold nothing before their first
   *   step, as optimizers do
   */
  parts(names: ReadonlySet<string>): readonly Part[]

  /**
   * Takes what it has asked for, in that order. The arrays are the owner's from now on. Called when
   * all ranks have read all that they want.
   */
  load(pieces: readonly Piece[]): void | Promise<void>
}

/** Number of values of a part. */
export function partSize({ shape, box, range }: Part): number {
  return range === undefined ? sizeOf(box?.extent ?? shape) : range[1] - range[0]
}

/** The part of a parameter that this rank holds; of a flat share of it, the values [from, to). */
export function partOfParameter(
  { name, shape, shard }: Pick<Parameter, 'name' | 'shape' | 'shard'>,
  range?: readonly [from: number, to: number],
): Part {
  const cut = range === undefined ? {} : { range }
  if (shard === undefined) return { name, shape, ...cut }
  const offset = shard.shape.map((_, axis) => (axis === shard.axis ? shard.offset : 0))
  return { name, shape: shard.shape, box: { offset, extent: shape }, ...cut }
}

/** The name under which what an optimizer keeps of a parameter is saved: `optimizer/mean/layers.0.weight`. */
export function stateName(parameter: string, kind: string): string {
  return `optimizer/${kind}/${parameter}`
}

export function isStateName(name: string): boolean {
  return name.startsWith('optimizer/')
}

/** The way back from `stateName`; undefined for a parameter. */
export function parseStateName(
  name: string,
): { readonly parameter: string; readonly kind: string } | undefined {
  const [, kind, parameter] = /^optimizer\/([^/]+)\/(.+)$/.exec(name) ?? []
  return kind === undefined ? undefined : { kind, parameter: parameter! }
}
