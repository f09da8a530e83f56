import { tsrError } from '@tsrun/core'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { haveCommon, partSize, rangeOf, type HeldPiece, type Part } from './piece.ts'
import { layoutOf, type SafetensorsDType } from './safetensors/dtypes.ts'

/** A piece without its values. Ranks exchange these descriptions. */
export interface PieceFacts extends Part {
  readonly dtype: SafetensorsDType
  readonly bytes: number
}

export function factsOf({ values, ...part }: HeldPiece): PieceFacts {
  return { ...part, ...layoutOf(values) }
}

/** A piece to save, and the rank that writes the piece. */
export interface PlannedPiece extends PieceFacts {
  /** The name of the piece in its file; see `keyOf`. */
  readonly key: string
  readonly rank: number
}

interface TensorPieces {
  /** The description of the piece by the first rank that holds it. */
  readonly facts: PieceFacts
  readonly rank: number
  /** The number of values found so far. */
  size: number
  /** The distinct pieces of the tensor. */
  readonly parts: PieceFacts[]
}

/**
 * Decides which rank writes which piece. If several ranks hold the same piece, the rank with the
 * fewest bytes to write so far writes it. All ranks compute the same plan.
 *
 * @param held - the pieces of each rank
 * @throws ERR_TSR_CHECKPOINT_PIECES when the pieces of a tensor do not form the whole tensor
 */
export function planPieces(held: readonly (readonly PieceFacts[])[]): PlannedPiece[] {
  const copies = new Map<string, { facts: PieceFacts; ranks: number[] }>()
  const tensors = new Map<string, TensorPieces>()
  for (const [rank, pieces] of held.entries()) {
    for (const facts of pieces) {
      const tensor = tensors.get(facts.name) ?? { facts, rank, size: 0, parts: [] }
      tensors.set(facts.name, tensor)
      checkSame(tensor, facts, rank)
      const key = keyOf(facts)
      const copy = copies.get(key)
      if (copy === undefined) {
        copies.set(key, { facts, ranks: [rank] })
        tensor.size += partSize(facts)
        tensor.parts.push(facts)
      } else {
        copy.ranks.push(rank)
      }
    }
  }
  for (const tensor of tensors.values()) {
    checkComplete(tensor)
    checkDisjoint(tensor.parts)
  }
  const loads = held.map(() => 0)
  return Array.from(copies, ([key, { facts, ranks }]) => {
    const rank = ranks.reduce((least, next) => (loads[next]! < loads[least]! ? next : least))
    loads[rank]! += facts.bytes
    return { ...facts, key, rank }
  })
}

/**
 * Checks that replicas are equal.
 *
 * @param checksums - of each rank, the CRC-32 of its pieces by their keys
 * @throws ERR_TSR_CHECKPOINT_PIECES when they differ, because it is unknown which one is right
 */
export function checkReplicas(
  plan: readonly PlannedPiece[],
  checksums: readonly ReadonlyMap<string, number>[],
): void {
  for (const { name: tensor, key } of plan) {
    const [first, ...others] = [...checksums.keys()].filter((rank) => checksums[rank]!.has(key))
    const wanted = checksums[first!]!.get(key)
    const other = others.find((rank) => checksums[rank]!.get(key) !== wanted)
    if (other === undefined) continue
    const problem = `ranks ${String(first)} and ${other} have different values of ${key}`
    throw tsrError('ERR_TSR_CHECKPOINT_PIECES', { tensor, problem })
  }
}

/** Returns the name of a part in its file, such as `layers.0.weight[0:4,8:16]`. A range adds `{0:100}`. */
export function keyOf({ name, shape, box, range }: Part): string {
  const isWhole = box === undefined || box.extent.every((length, axis) => length === shape[axis])
  const ends = isWhole
    ? ''
    : `[${box.offset.map((from, axis) => between(from, from + box.extent[axis]!)).join()}]`
  const size = sizeOf(box?.extent ?? shape)
  const isAll = range === undefined || (range[0] === 0 && range[1] === size)
  return `${name}${ends}${isAll ? '' : `{${between(...range)}}`}`
}

function between(from: number, to: number): string {
  return `${from}:${to}`
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
    problem: `it is ${wanted!} on rank ${first} and ${has!} on rank ${rank}`,
  })
}

function checkComplete({ facts, size }: TensorPieces): void {
  const whole = sizeOf(facts.shape)
  if (size === whole) return
  throw tsrError('ERR_TSR_CHECKPOINT_PIECES', {
    tensor: facts.name,
    problem: `its pieces have ${size} values, but the tensor [${facts.shape.join(', ')}] has ${whole}`,
  })
}

/** @throws ERR_TSR_CHECKPOINT_PIECES when pieces overlap, even if their sizes add up */
function checkDisjoint(parts: readonly PieceFacts[]): void {
  const byBox = new Map<string, PieceFacts[]>()
  for (const part of parts.filter((each) => partSize(each) > 0)) {
    const box = JSON.stringify(part.box ?? null)
    byBox.set(box, [...(byBox.get(box) ?? []), part])
  }
  const boxes = [...byBox.values()]
  for (const [i, own] of boxes.entries()) {
    // Compare the ranges within one box directly, which is faster than comparing row by row.
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

function boxOf({ name, shape, box }: Part): Part {
  return { name, shape, ...(box && { box }) }
}

function overlap(a: PieceFacts, b: PieceFacts): Error {
  const problem = `${keyOf(a)} and ${keyOf(b)} overlap`
  return tsrError('ERR_TSR_CHECKPOINT_PIECES', { tensor: a.name, problem })
}
