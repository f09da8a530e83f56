import { refuseUnknown, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { checkPlace } from './arguments.ts'
import type { Contents } from './contents.ts'
import type { Checkpoint } from './folders.ts'
import { latestCheckpoint, openFinished, type LatestCheckpoint } from './latest.ts'
import { isStateName, type Part, type Piece, type PieceOwner } from './piece.ts'
import { readParts } from './read.ts'
import { describeNames } from './safetensors/read.ts'
import { ownersOf, type CheckpointState } from './state.ts'
import { together } from './together.ts'

export interface LoadOptions {
  /** False leaves out tensors of the checkpoint that the model has not; default true: an error. */
  readonly strict?: boolean
}

/** What was saved beside tensors. */
export interface LoadedCheckpoint extends LatestCheckpoint {
  /** As it was given to `saveCheckpoint`; null where nothing was. */
  readonly data: unknown
  readonly seeds: Readonly<Record<string, number>>
}

/**
 * Puts a checkpoint into a model and an optimizer, in whatever layout it was saved: each rank reads
 * the parts of tensors that it holds. All ranks of the group call it; nothing is changed before all
 * have read what they want.
 *
 * @param directory - a checkpoint, or the folder of several: the newest that is complete
 * @param state - built as for training, with the same names and sizes
 * @param group - all ranks that have a part; default: this process alone
 *
 * @example
 * const { step, data } = await loadCheckpoint('checkpoints', { model, optimizer }, group)
 * loader.loadState(data as LoaderState)
 *
 * @throws ERR_TSR_CHECKPOINT_NONE when there is none; ERR_TSR_CHECKPOINT_MODEL when it is that of
 *   another model, ERR_TSR_CHECKPOINT_MISSING and ERR_TSR_CHECKPOINT_SHAPE of a tensor;
 *   ERR_TSR_CHECKPOINT_UNFINISHED, ERR_TSR_CHECKPOINT_DAMAGED; ERR_TSR_ARGUMENT for an
 *   unknown option, or one that the state has not. All ranks throw when one does.
 */
export async function loadCheckpoint(
  directory: string,
  state: CheckpointState,
  group?: ProcessGroup,
  options: LoadOptions = {},
): Promise<LoadedCheckpoint> {
  checkPlace(directory, group)
  const latest = await latestCheckpoint(directory, group)
  if (latest === undefined) throw tsrError('ERR_TSR_CHECKPOINT_NONE', { directory })
  let owners: readonly PieceOwner[] = []
  const wanted: (readonly Part[])[] = []
  let checkpoint: Checkpoint | undefined
  const ranks = await together(group, async () => {
    refuseUnknown(options, ['strict'])
    owners = ownersOf(state)
    checkpoint = await openFinished(latest.path)
    const names = new Set(Object.keys(checkpoint.contents.tensors))
    for (const owner of owners) wanted.push(owner.parts(names))
    return wanted.flat().map(({ name }) => name)
  })
  const { path, contents } = checkpoint!
  const pieces: Piece[][] = []
  await together(group, async () => {
    checkModel(path, contents, { names: new Set(ranks.flat()), strict: options.strict, state })
    for (const parts of wanted) pieces.push(await readParts(checkpoint!, parts))
  })
  // the optimizer first: it may be one of another kind, and refuse, where it has state to load
  for (const [i, owner] of [...owners.entries()].reverse()) {
    await together(group, async () => {
      await owner.load(pieces[i]!)
    })
  }
  return { ...latest, data: contents.data, seeds: contents.seeds }
}

interface Wishes {
  /** What all ranks together want. */
  readonly names: ReadonlySet<string>
  readonly strict: boolean | undefined
  readonly state: CheckpointState
}

function checkModel(path: string, { tensors, hasOptimizer }: Contents, wishes: Wishes): void {
  const { names, strict = true, state } = wishes
  if (state.optimizer !== undefined && !hasOptimizer) {
    const tensor = 'state of an optimizer'
    throw tsrError('ERR_TSR_CHECKPOINT_MISSING', { path, tensor, found: 'a model only' })
  }
  if (!strict) return
  const more = Object.keys(tensors).filter((name) => !isStateName(name) && !names.has(name))
  if (more.length === 0) return
  const less = [...names].filter((name) => !Object.hasOwn(tensors, name))
  throw tsrError('ERR_TSR_CHECKPOINT_MODEL', {
    path,
    more: describeNames(more),
    less: describeNames(less),
  })
}
