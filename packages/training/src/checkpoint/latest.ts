import { access } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { INDEX } from './contents.ts'
import {
  isMissing,
  listCheckpoints,
  openCheckpoint,
  type Checkpoint,
  type UnusableCheckpoint,
} from './folders.ts'
import { together } from './together.ts'

export interface LatestCheckpoint {
  /** Its folder. */
  readonly path: string
  readonly step: number
  /** Newer ones that cannot be used, and why: files are missing or have other sizes. */
  readonly skipped: readonly UnusableCheckpoint[]
}

/**
 * The newest complete checkpoint of a folder; undefined where there is none. What was not finished
 * has no name of a checkpoint.
 *
 * @param directory - a checkpoint, or the folder of several
 * @param group - all of its ranks call it, and get the answer of rank 0
 * @throws ERR_TSR_CHECKPOINT_UNFINISHED when there are some, but none is complete
 */
export async function latestCheckpoint(
  directory: string,
  group?: ProcessGroup,
): Promise<LatestCheckpoint | undefined> {
  const rank = group?.rank ?? 0
  const [latest] = await together(group, async () => {
    return rank === 0 ? ((await find(resolve(directory))) ?? null) : null
  })
  return latest ?? undefined
}

async function find(directory: string): Promise<LatestCheckpoint | undefined> {
  if (await exists(join(directory, INDEX))) {
    const { path, contents } = await openFinished(directory)
    return { path, step: contents.step, skipped: [] }
  }
  const skipped: UnusableCheckpoint[] = []
  for (const { name } of await listCheckpoints(directory)) {
    const path = join(directory, name)
    try {
      const { step } = (await openCheckpoint(path)).contents
      return { path, step, skipped }
    } catch (error) {
      skipped.push({ path, problem: (error as Error).message })
    }
  }
  if (skipped.length === 0) return undefined
  throw tsrError('ERR_TSR_CHECKPOINT_UNFINISHED', { ...skipped[0]! })
}

/** @throws ERR_TSR_CHECKPOINT_UNFINISHED */
export async function openFinished(path: string): Promise<Checkpoint> {
  try {
    return await openCheckpoint(path)
  } catch (error) {
    const { message: problem } = error as Error
    throw tsrError('ERR_TSR_CHECKPOINT_UNFINISHED', { path, problem }, { cause: error })
  }
}

async function exists(path: string): Promise<boolean> {
  try {
    await access(path)
    return true
  } catch (error) {
    if (isMissing(error)) return false
    throw error
  }
}
