import { argumentError, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { onAllRanks } from './coordination.ts'
import {
  copyCommon,
  copyPieces,
  haveCommon,
  partSize,
  rangeOf,
  type HeldPiece,
  type Part,
  type Piece,
  type PieceOwner,
  type PieceValues,
} from './piece.ts'
import { describeNames } from './safetensors/format.ts'
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

function between(from: number, to: number) {
  return `${from}:${to}`
}

function checkSame(
  { facts, rank: first }: { facts: PieceFacts; rank: number },
  found: PieceFacts,
  rank: number,
) {
  const [wanted, has] = [facts, found].map(({ dtype, shape }) => `${dtype} [${shape.join(', ')}]`)
  if (wanted === has) return
  throw tsrError('ERR_TSR_CHECKPOINT_PIECES', {
    tensor: found.name,
    problem: `it is ${wanted!} on rank ${first} and ${has!} on rank ${rank}`,
  })
}

function checkComplete({ facts, size }: TensorPieces) {
  const whole = sizeOf(facts.shape)
  if (size === whole) return
  throw tsrError('ERR_TSR_CHECKPOINT_PIECES', {
    tensor: facts.name,
    problem: `its pieces have ${size} values, but the tensor [${facts.shape.join(', ')}] has ${whole}`,
  })
}

/** @throws ERR_TSR_CHECKPOINT_PIECES when pieces overlap, even if their sizes add up */
function checkDisjoint(parts: readonly PieceFacts[]) {
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
      if (!haveCommon({ ...own[0]!, range: undefined }, { ...other[0]!, range: undefined }))
        continue
      for (const a of own) for (const b of other) if (haveCommon(a, b)) throw overlap(a, b)
    }
  }
}

function overlap(a: PieceFacts, b: PieceFacts) {
  const problem = `${keyOf(a)} and ${keyOf(b)} overlap`
  return tsrError('ERR_TSR_CHECKPOINT_PIECES', { tensor: a.name, problem })
}

/** The largest number of values in a message. */
const CHUNK = 4 * 1024 * 1024

/**
 * Gathers the whole tensors of a model on rank 0. All ranks that hold a part of the model must call
 * this function.
 *
 * @param call - the user's call, for `onAllRanks`
 * @param owner - the owner of this rank's part
 * @param names - the names of the model's tensors
 * @param group - the ranks that hold parts; undefined: only this process
 * @returns the tensors by name on rank 0, undefined on other ranks
 * @throws ERR_TSR_CHECKPOINT_PIECES when no rank holds one of the names, ERR_TSR_ARGUMENT when ranks
 *   hold tensors of other names, ERR_TSR_NOT_FINITE; on all ranks
 */
export async function gatherModel(
  call: string,
  owner: PieceOwner,
  names: readonly string[],
  group: ProcessGroup | undefined,
): Promise<Map<string, Piece> | undefined> {
  let own = new Map<string, Piece>()
  const held = await onAllRanks(group, call, async () => {
    // Use a map, because a tied parameter may be listed twice.
    own = new Map((await copyPieces(owner)).map((piece) => [keyOf(piece), piece]))
    return Array.from(own.values(), factsOf)
  })
  const plan = planPieces(held)
  const found = new Set(plan.map(({ name }) => name))
  const missing = names.filter((name) => !found.has(name))
  const more = [...found].filter((name) => !names.includes(name))
  if (more.length > 0) {
    throw argumentError(
      'model',
      `one with ${describeNames(more)}`,
      'the parameters of its recipe only: merge adapters into the weights',
    )
  }
  if (missing.length === 0) return await gatherPieces(own, plan, group)
  throw tsrError('ERR_TSR_CHECKPOINT_PIECES', {
    tensor: missing[0]!,
    problem: `no rank has it, nor ${missing.length - 1} others of the recipe; pass the group of all ranks that hold a part`,
  })
}

/** @returns the whole tensors by name, on rank 0 */
async function gatherPieces(
  own: ReadonlyMap<string, Piece>,
  plan: readonly PlannedPiece[],
  group: ProcessGroup | undefined,
): Promise<Map<string, Piece> | undefined> {
  const rank = group?.rank ?? 0
  const whole = new Map<string, Piece>()
  for (const planned of plan) {
    const { name, shape, key, rank: holder } = planned
    let piece = own.get(key)!
    if (rank !== 0) {
      if (holder !== rank) continue
      await inChunks(piece.values, (chunk) => group!.send(chunk, 0, LABELLED))
      continue
    }
    if (holder !== 0) {
      piece = { ...planned, values: new Float32Array(partSize(planned)) }
      await inChunks(piece.values, (chunk) => group!.recv(chunk, holder, LABELLED))
    }
    const tensor = whole.get(name) ?? { name, shape, values: new Float32Array(sizeOf(shape)) }
    whole.set(name, tensor)
    copyCommon(piece, tensor)
  }
  return rank === 0 ? whole : undefined
}

const LABELLED = { label: 'export' }

async function inChunks(
  values: PieceValues,
  transfer: (chunk: PieceValues) => PromiseLike<unknown>,
) {
  for (let at = 0; at < values.length; at += CHUNK) await transfer(values.subarray(at, at + CHUNK))
}
