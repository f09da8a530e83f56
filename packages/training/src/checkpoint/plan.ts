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

/** The distinct pieces of a tensor, and the ranks that hold them. */
interface HeldTensor {
  /** The description of a piece, from the first rank that holds one. */
  readonly facts: PieceFacts
  readonly rank: number
  /** The distinct pieces by key, each with the ranks that hold it. */
  readonly pieces: Map<string, PieceFacts & { readonly key: string; readonly ranks: number[] }>
}

/**
 * Decides which rank writes each piece. Of the ranks that hold the piece, chooses the one with the fewest
 * bytes to write so far. All ranks compute the same plan. Throws if pieces do not form whole tensors.
 */
export function planPieces(held: readonly (readonly PieceFacts[])[]): PlannedPiece[] {
  const tensors = new Map<string, HeldTensor>()
  for (const [rank, pieces] of held.entries()) {
    for (const facts of pieces) {
      const tensor: HeldTensor = tensors.get(facts.name) ?? { facts, rank, pieces: new Map() }
      tensors.set(facts.name, tensor)
      checkSame(tensor, facts, rank)
      const key = keyOf(facts)
      const piece = tensor.pieces.get(key) ?? { ...facts, key, ranks: [] }
      tensor.pieces.set(key, piece)
      piece.ranks.push(rank)
    }
  }
  const loads = held.map(() => 0)
  return Array.from(tensors.values(), ({ facts, pieces }) => {
    const all = [...pieces.values()]
    checkComplete(facts, all)
    checkDisjoint(all)
    return all.map(({ ranks, ...piece }) => {
      const rank = ranks.reduce((least, next) => (loads[next]! < loads[least]! ? next : least))
      loads[rank]! += piece.bytes
      return { ...piece, rank }
    })
  }).flat()
}

/** Checks that replicas are equal, given the CRC-32 of each rank's pieces by key. */
export function checkReplicas(
  plan: readonly PlannedPiece[],
  checksums: readonly ReadonlyMap<string, number>[],
): void {
  for (const { name: tensor, key } of plan) {
    const [first, ...others] = [...checksums.keys()].filter((rank) => checksums[rank]!.has(key))
    const wanted = checksums[first!]!.get(key)
    const other = others.find((rank) => checksums[rank]!.get(key) !== wanted)
    if (other === undefined) continue
    throw refused(tensor, `ranks ${String(first)} and ${other} have different values of ${key}`)
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

function checkSame({ facts, rank: first }: HeldTensor, found: PieceFacts, rank: number) {
  const [wanted, has] = [facts, found].map(({ dtype, shape }) => `${dtype} [${shape.join(', ')}]`)
  if (wanted === has) return
  throw refused(found.name, `it is ${wanted!} on rank ${first} and ${has!} on rank ${rank}`)
}

function checkComplete({ name, shape }: PieceFacts, pieces: readonly PieceFacts[]) {
  const size = pieces.reduce((sum, piece) => sum + partSize(piece), 0)
  if (size === sizeOf(shape)) return
  const whole = `the tensor [${shape.join(', ')}] has ${sizeOf(shape)}`
  throw refused(name, `its pieces have ${size} values, but ${whole}`)
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
  return refused(a.name, `${keyOf(a)} and ${keyOf(b)} overlap`)
}

function refused(tensor: string, problem: string) {
  return tsrError('ERR_TSR_CHECKPOINT_PIECES', { tensor, problem })
}

/** The largest number of values in a message. */
const CHUNK = 4 * 1024 * 1024

/**
 * Gathers the whole tensors of a model on rank 0, by name; returns undefined on other ranks. All ranks
 * that hold a part of the model must call this function.
 *
 * @param call - the user's call, for `onAllRanks`
 * @param names - the names of all tensors of the model
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
  throw refused(
    missing[0]!,
    `no rank has it, nor ${missing.length - 1} others of the recipe; pass the group of all ranks that hold a part`,
  )
}

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
