import { crc32 } from 'node:zlib'
import { tsrError } from '@tsrun/core'
import { commonRuns } from './overlap.ts'
import { dtypeOf } from './safetensors/dtypes.ts'
import { partSize, type Part, type Piece } from './piece.ts'

/** A piece without its values, as the ranks tell each other what they hold. */
export interface PieceFacts extends Part {
  readonly dtype: string
  readonly bytes: number
  /** CRC-32 of the values; left out where equal pieces are not compared. */
  readonly crc32?: number
}

export function factsOf(piece: Piece, compare: boolean): PieceFacts {
  const { values, ...part } = piece
  const facts = { ...part, dtype: dtypeOf(values), bytes: values.byteLength }
  return compare ? { ...facts, crc32: crc32(bytesIn(piece)) } : facts
}

/** One piece of those that are saved, and who writes it. */
export interface PlannedPiece extends PieceFacts {
  /** Its name in the file: that of the tensor, and which part it is unless it is the whole. */
  readonly key: string
  readonly rank: number
}

/** What all ranks together have of a tensor. */
interface Whole {
  /** Of the first rank that has a piece. */
  readonly facts: PieceFacts
  readonly rank: number
  /** Values so far. */
  size: number
  /** Different pieces. */
  readonly parts: PieceFacts[]
}

/**
 * Who writes what: of equal pieces, which replicas hold, one is written, by the rank of those that
 * has least to write so far. All ranks come to the same plan.
 *
 * @param held - what each rank holds
 * @throws ERR_TSR_CHECKPOINT_PIECES when the pieces of a tensor are not one whole
 */
export function planPieces(held: readonly (readonly PieceFacts[])[]): PlannedPiece[] {
  const copies = new Map<string, { facts: PieceFacts; ranks: number[] }>()
  const wholes = new Map<string, Whole>()
  for (const [rank, pieces] of held.entries()) {
    for (const facts of pieces) {
      const whole = wholes.get(facts.name) ?? { facts, rank, size: 0, parts: [] }
      wholes.set(facts.name, whole)
      checkSame(whole, facts, rank)
      const key = keyOf(facts)
      const copy = copies.get(key)
      if (copy === undefined) {
        copies.set(key, { facts, ranks: [rank] })
        whole.size += partSize(facts)
        whole.parts.push(facts)
      } else {
        checkCopy(copy, facts, rank)
        copy.ranks.push(rank)
      }
    }
  }
  for (const whole of wholes.values()) checkWhole(whole)
  const loads = held.map(() => 0)
  return Array.from(copies, ([key, { facts, ranks }]) => {
    const rank = ranks.reduce((least, next) => (loads[next]! < loads[least]! ? next : least))
    loads[rank]! += facts.bytes
    return { ...facts, key, rank }
  })
}

/**
 * A tied parameter may be in the list twice; two that differ would be saved as one.
 *
 * @param pieces - of one rank
 * @throws ERR_TSR_CHECKPOINT_PIECES
 */
export function checkNames(pieces: readonly Piece[]): void {
  const byKey = new Map<string, Piece>()
  for (const piece of pieces) {
    const key = keyOf(piece)
    const former = byKey.get(key)
    byKey.set(key, piece)
    if (former === undefined || bytesIn(former).equals(bytesIn(piece))) continue
    const problem = 'one rank has two of this name, with different values'
    throw tsrError('ERR_TSR_CHECKPOINT_PIECES', { tensor: piece.name, problem })
  }
}

function bytesIn({ values: { buffer, byteOffset, byteLength } }: Piece): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength)
}

/** A name of the part in its file: `layers.0.weight[0:4,8:16]`, and of a range `...{0:100}`. */
export function keyOf({ name, shape, box, range }: Part): string {
  const isWhole = box === undefined || box.extent.every((length, axis) => length === shape[axis])
  const ends = isWhole
    ? ''
    : `[${box.offset.map((from, axis) => between(from, from + box.extent[axis]!)).join()}]`
  const size = partSize({ name, shape, ...(box && { box }) })
  const isAll = range === undefined || (range[0] === 0 && range[1] === size)
  return `${name}${ends}${isAll ? '' : `{${between(...range)}}`}`
}

function between(from: number, to: number): string {
  return `${String(from)}:${String(to)}`
}

function checkSame(
  { facts, rank: first }: { facts: PieceFacts; rank: number },
  found: PieceFacts,
  rank: number,
): void {
  const [wanted, has] = [facts, found].map(({ dtype, shape }) => `${dtype} [${shape.join(', ')}]`)
  if (wanted === has) return
  throw tsrError('ERR_TSR_CHECKPOINT_PIECES', {
    tensor: found.name,
    problem: `it is ${wanted!} on rank ${String(first)} and ${has!} on rank ${String(rank)}`,
  })
}

/** Replicas that have drifted apart: nobody would know whose values are the ones that were saved. */
function checkCopy(
  { facts, ranks }: { readonly facts: PieceFacts; readonly ranks: readonly number[] },
  found: PieceFacts,
  rank: number,
): void {
  if (facts.crc32 === found.crc32) return
  throw tsrError('ERR_TSR_CHECKPOINT_PIECES', {
    tensor: found.name,
    problem: `ranks ${String(ranks[0])} and ${String(rank)} have other values of ${keyOf(found)}`,
  })
}

function checkWhole({ facts, size, parts }: Whole): void {
  const whole = partSize({ name: facts.name, shape: facts.shape })
  if (size === whole) {
    checkDisjoint(parts)
    return
  }
  throw tsrError('ERR_TSR_CHECKPOINT_PIECES', {
    tensor: facts.name,
    problem: `they have ${String(size)} values, and the whole, [${facts.shape.join(', ')}], has ${String(whole)}`,
  })
}

/** As many values as the whole has may be some of them twice, and others not at all. */
function checkDisjoint(parts: readonly PieceFacts[]): void {
  const byBox = new Map<string, PieceFacts[]>()
  for (const part of parts.filter((each) => partSize(each) > 0)) {
    const box = JSON.stringify(part.box ?? null)
    byBox.set(box, [...(byBox.get(box) ?? []), part])
  }
  const boxes = [...byBox.values()]
  for (const [i, own] of boxes.entries()) {
    // flat shares of a box: one behind the other, without a look at its rows
    own.sort((a, b) => rangeOf(a)[0] - rangeOf(b)[0])
    for (const [k, part] of own.entries()) {
      if (k > 0 && rangeOf(own[k - 1]!)[1] > rangeOf(part)[0]) throw overlap(own[k - 1]!, part)
    }
    for (const other of boxes.slice(i + 1)) {
      if (!haveCommon(boxOf(own[0]!), boxOf(other[0]!))) continue
      for (const a of own) for (const b of other) if (haveCommon(a, b)) throw overlap(a, b)
    }
  }
}

function haveCommon(a: Part, b: Part): boolean {
  return commonRuns(a, b).next().done === false
}

function boxOf({ name, shape, box }: Part): Part {
  return { name, shape, ...(box && { box }) }
}

function rangeOf(part: Part): readonly [from: number, to: number] {
  return part.range ?? [0, partSize(part)]
}

function overlap(a: PieceFacts, b: PieceFacts): Error {
  const problem = `${keyOf(a)} and ${keyOf(b)} overlap`
  return tsrError('ERR_TSR_CHECKPOINT_PIECES', { tensor: a.name, problem })
}
