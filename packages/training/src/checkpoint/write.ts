import { channel } from 'node:diagnostics_channel'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { isTsrError, messageOf, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { encodeContents, type Contents, type StoredPiece, type StoredTensor } from './contents.ts'
import { onAllRanks } from './coordination.ts'
import { checkFinite, partSize, type HeldPiece } from './piece.ts'
import { checkReplicas, factsOf, keyOf, planPieces, type PlannedPiece } from './plan.ts'
import { writerFor, writeTensors } from './write-safetensors.ts'
import type { Writer } from './writer.ts'

const saved = channel('tsrun.checkpoint-saved')

/** The data that a rank saves. `SaveOptions` describes `compare`, `finite` and `keep`. */
export interface RankShare {
  /** The folder of all checkpoints, and the name of the new checkpoint. */
  readonly folder: string
  readonly name: string
  /** All pieces of this rank. Pieces that another rank writes are only checked. */
  readonly pieces: readonly HeldPiece[]
  readonly compare: boolean
  readonly finite: boolean
  readonly facts: Pick<Contents, 'step' | 'data' | 'hasOptimizer'>
  readonly keep: number
}

/** The data of a rank, with the plan of all ranks and the number of the save. */
interface Planned extends RankShare {
  readonly plan: readonly PlannedPiece[]
  readonly save: number
  readonly writer: Writer
}

type WrittenShard = Awaited<ReturnType<typeof writeShard>>

/**
 * Writes the files of all ranks into a folder with a temporary name. When all files are on disk,
 * rank 0 adds the index and renames the folder. If a rank throws, all do.
 */
export async function writeCheckpoint(
  share: RankShare,
  group: ProcessGroup | undefined,
): Promise<void> {
  const { folder, name, pieces } = share
  const rank = group?.rank ?? 0
  const path = join(folder, `.${name}.unfinished`)
  const writer = writerFor(pieces.map(({ values }) => values))
  const step = <T>(run: () => Promise<T>): Promise<T[]> =>
    onAllRanks(group, 'save', () => withSaveErrors(join(folder, name), rank, run))
  try {
    const ranks = await step(async () => ({
      held: pieces.map(factsOf),
      save: rank === 0 ? await writer('makeUnfinished', [folder, path]) : 0,
    }))
    const plan = planPieces(ranks.map(({ held }) => held))
    const planned = { ...share, plan, save: ranks[0]!.save, writer }
    const shards = await step(() => writeShard(path, planned, rank, group?.size ?? 1))
    const checksums = shards.map((shard) => new Map(shard.checksums))
    await step(async () => {
      if (share.compare) checkReplicas(plan, checksums)
      if (rank === 0) await finish(path, planned, shards, checksums)
    })
  } catch (error) {
    if (rank === 0) await rm(path, { recursive: true, force: true }).catch(() => undefined)
    throw error
  }
}

/** @throws ERR_TSR_CHECKPOINT_WRITE when `run` throws an error that is not from tsrun */
export async function withSaveErrors<T>(
  path: string,
  rank: number,
  run: () => T | Promise<T>,
): Promise<T> {
  try {
    return await run()
  } catch (error) {
    if (isTsrError(error)) throw error
    const reason = messageOf(error)
    throw tsrError('ERR_TSR_CHECKPOINT_WRITE', { path, rank, reason }, { cause: error })
  }
}

async function writeShard(
  path: string,
  { plan, pieces, finite, writer }: Planned,
  rank: number,
  ranks: number,
) {
  const own = new Map(pieces.toReversed().map((piece) => [keyOf(piece), piece]))
  const mine = plan.filter((piece) => piece.rank === rank)
  const tensors = new Map(
    mine.map((piece) => {
      const { key, shape, box, range } = piece
      const storedShape = range === undefined ? (box?.extent ?? shape) : [partSize(piece)]
      return [key, { shape: storedShape, values: own.get(key)!.values }]
    }),
  )
  const all = [...new Set([...mine.map(({ key }) => own.get(key)!), ...pieces])]
  const others = all.slice(mine.length).map(({ values }) => values)
  const [number, count] = [rank, ranks].map((value) => String(value).padStart(5, '0'))
  // A rank that has nothing to write creates no file.
  const file = mine.length > 0 ? `rank-${number!}-of-${count!}.safetensors` : undefined
  const target = file && join(path, file)
  const { bytes, checks } = await writeTensors(target, tensors, others, { format: 'pt' }, writer)
  /** The CRC-32 of the rank's pieces, by key. */
  const checksums = new Map<string, number>()
  for (const [i, piece] of all.entries()) {
    const { crc32, notFinite } = checks[i]!
    if (finite) checkFinite(piece.name, notFinite)
    const key = keyOf(piece)
    // A tied parameter may be listed twice.
    if ((checksums.get(key) ?? crc32) !== crc32) {
      const problem = 'a rank has two tensors of this name with different values'
      throw tsrError('ERR_TSR_CHECKPOINT_PIECES', { tensor: piece.name, problem })
    }
    checksums.set(key, crc32)
  }
  return { file, bytes, checksums: [...checksums] }
}

async function finish(
  path: string,
  { folder, name, plan, save, facts, keep, writer }: Planned,
  shards: readonly WrittenShard[],
  checksums: readonly ReadonlyMap<string, number>[],
) {
  const files = shards.flatMap(({ file, bytes }) => (file === undefined ? [] : [[file, bytes]]))
  const tensors = new Map<string, StoredTensor & { readonly pieces: StoredPiece[] }>()
  for (const { name, shape, dtype, key, box, range, rank } of plan) {
    const tensor = tensors.get(name) ?? { dtype, shape, pieces: [] }
    tensors.set(name, tensor)
    const crc32 = checksums[rank]!.get(key)!
    tensor.pieces.push({ file: shards[rank]!.file!, key, box, range, crc32 })
  }
  const index = encodeContents({
    save,
    ...facts,
    ranks: shards.length,
    files: Object.fromEntries(files) as Record<string, number>,
    tensors: Object.fromEntries(tensors),
  })
  const final = join(folder, name)
  await writer('publish', [path, final, index])
  // With --event-log, code of the launcher in each rank subscribes to this channel.
  saved.publish({ step: facts.step, path: final })
  await writer('prune', [folder, keep]).catch((error: unknown) => {
    const facts = { path: final, reason: messageOf(error) }
    throw tsrError('ERR_TSR_CHECKPOINT_PRUNE', facts, { cause: error })
  })
}
