import { join, resolve } from 'node:path'
import { refuseUnknown } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { checkAgreement } from './agreement.ts'
import { checkPlace } from './arguments.ts'
import { newPlace } from './folders.ts'
import type { Piece, PieceValues } from './piece.ts'
import { checkNames, factsOf, keyOf, planPieces, type PlannedPiece } from './plan.ts'
import { checkArguments, copyBeside, nothingBeside, type SavedState } from './saved-state.ts'
import { ownersOf } from './state.ts'
import { together } from './together.ts'
import { inTurn, type Writing } from './turns.ts'
import { attempt, unlessAborted, writeCheckpoint } from './write.ts'

export interface SaveOptions {
  /** Newest checkpoints to keep, this one among them; default: all. */
  readonly keep?: number
  /**
   * Goes on when the values are copied, and writes while training goes on; see `SavedCheckpoint.done`.
   * Default false.
   */
  readonly background?: boolean
  /**
   * Whether what several ranks hold is compared by its CRC-32, and refused where it differs. False
   * saves the values of any of them, for replicas that differ by rounding. Default true.
   */
  readonly compare?: boolean
  /**
   * Milliseconds that a rank waits for those that write longer; default: the time-out of the group,
   * which may be too short for a slow disk.
   */
  readonly timeout?: number
  /**
   * Gives up when it is aborted on any rank before all files are there: the checkpoints before stay,
   * and so does the group.
   */
  readonly signal?: AbortSignal
}

const KNOWN = Object.keys({
  keep: true,
  background: true,
  compare: true,
  timeout: true,
  signal: true,
} satisfies Record<keyof SaveOptions, true>)

export interface SavedCheckpoint {
  /** Its folder, `<directory>/step-<step>`, as soon as it is done. */
  readonly path: string
  /**
   * Settled when the checkpoint is on the disk, or will never be. Await it before you leave the group.
   * The next save waits for it too, and throws its error where nobody has awaited it.
   */
  readonly done: Promise<void>
}

/** Ranks write at their own pace beside training: messages of their own keep the order. */
const sideGroups = new WeakMap<ProcessGroup, Promise<ProcessGroup | undefined>>()

/**
 * Saves a model, an optimizer and the place in the data, as `<directory>/step-<step>`: of every rank
 * the tensors that it alone holds, in a safetensors file, and of replicas' equal ones one copy. Loads
 * in any other layout; see `loadCheckpoint`. All ranks of the group call it.
 *
 * The files are on the disk before the checkpoint gets its name: a crash at any moment leaves the one
 * before. A folder belongs to one job, and all its hosts see it.
 *
 * @param group - all ranks that have a part, for example the world; default: this process alone
 *
 * @example
 * await saveCheckpoint('checkpoints', { model, optimizer, step, data: loader.state() }, group)
 *
 * @throws ERR_TSR_CHECKPOINT_WRITE on a full disk, a read-only folder, ...;
 *   ERR_TSR_CHECKPOINT_PIECES when the ranks do not have one whole model, or replicas differ;
 *   ERR_TSR_CHECKPOINT_PRUNE when it is saved, but an older one cannot be removed;
 *   ERR_TSR_OPERATION_TIMEOUT; ERR_TSR_OPERATION_ABORTED; ERR_TSR_ARGUMENT when the ranks disagree, or
 *   the state or an option is out of range or unknown. All ranks throw when one does.
 */
export async function saveCheckpoint(
  directory: string,
  state: SavedState,
  group?: ProcessGroup,
  options: SaveOptions = {},
): Promise<SavedCheckpoint> {
  checkPlace(directory, group)
  const folder = resolve(directory)
  const { path, writing } = await inTurn(group ?? folder, async (failed) => {
    return await save(folder, state, group, options, failed?.untold)
  })
  return {
    path,
    get done() {
      return Promise.resolve(writing?.done).finally(() => {
        delete writing?.untold
      })
    },
  }
}

async function save(
  folder: string,
  state: SavedState,
  group: ProcessGroup | undefined,
  options: SaveOptions,
  untold: Writing['untold'],
): Promise<{ readonly path: string; readonly writing?: Writing }> {
  const { keep = Infinity, background = false, compare = true, timeout, signal } = options
  const rank = group?.rank ?? 0
  const pieces: Piece[] = []
  let beside = nothingBeside
  const ranks = await together(group, async () => {
    if (untold !== undefined) throw untold.error
    refuseUnknown(options, KNOWN)
    const owners = ownersOf(state)
    checkArguments(state, keep)
    await unlessAborted(signal, group, () => {
      signal?.throwIfAborted()
    })
    beside = copyBeside(state)
    for (const owner of owners) pieces.push(...(await owner.pieces()))
    checkNames(pieces)
    const place =
      rank === 0 ? await attempt(rank, folder, () => newPlace(folder, state.step)) : undefined
    const held = pieces.map((piece) => factsOf(piece, compare))
    const hasOptimizer = state.optimizer !== undefined
    return { held, place, step: state.step, hasOptimizer, background, compare }
  })
  checkAgreement(ranks)
  const plan = planPieces(ranks.map(({ held }) => held))
  const { place, hasOptimizer } = ranks[0]!
  const { name, save } = place!
  const facts = { save, step: state.step, ...beside, hasOptimizer }
  const tensors = valuesToWrite(pieces, plan, rank)
  const share = { folder, name, plan, tensors, facts, keep, timeout, signal }
  const path = join(folder, name)
  if (!background) {
    await writeCheckpoint(share, group)
    return { path }
  }
  const writing: Writing = { done: writeCheckpoint(share, await sideGroup(group)) }
  writing.done.catch((error: unknown) => {
    writing.untold = { error }
  })
  return { path, writing }
}

/** The values that this rank writes, by name in its file. */
function valuesToWrite(
  pieces: readonly Piece[],
  plan: readonly PlannedPiece[],
  rank: number,
): Map<string, PieceValues> {
  const mine = new Set(plan.filter((piece) => piece.rank === rank).map(({ key }) => key))
  const values = new Map<string, PieceValues>()
  for (const piece of pieces) {
    const key = keyOf(piece)
    if (mine.has(key) && !values.has(key)) values.set(key, piece.values)
  }
  return values
}

function sideGroup(group: ProcessGroup | undefined): Promise<ProcessGroup | undefined> {
  if (group === undefined || group.size === 1) return Promise.resolve(undefined)
  const former = sideGroups.get(group)
  if (former !== undefined) return former
  const made = group.split(0, group.rank, { name: `checkpoints of ${group.name}` })
  sideGroups.set(group, made)
  return made
}
