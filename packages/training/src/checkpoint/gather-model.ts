import { argumentError, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { onAllRanks } from './coordination.ts'
import {
  copyCommon,
  copyPieces,
  partSize,
  type Piece,
  type PieceOwner,
  type PieceValues,
} from './piece.ts'
import { describeNames } from './safetensors/read.ts'
import { factsOf, keyOf, planPieces, type PlannedPiece } from './plan.ts'

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
): Promise<void> {
  for (let at = 0; at < values.length; at += CHUNK) await transfer(values.subarray(at, at + CHUNK))
}
