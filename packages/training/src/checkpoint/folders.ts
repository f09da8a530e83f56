import { existsSync, readdirSync } from 'node:fs'
import { lstat, mkdir, readdir, rename, rm, stat } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import {
  argumentError,
  codeOf,
  makeFolders,
  messageOf,
  openFileHandle,
  readFileText,
  tsrError,
} from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { decodeContents, HEAD, INDEX, saveNumberIn, type Contents } from './contents.ts'
import { onAllRanks } from './coordination.ts'
import { syncFolder, writeDurably } from './safetensors/durable.ts'

const FINISHED = /^step-\d+(?:-(\d+))?$/
/** A folder of an unfinished save, or of a checkpoint that was about to be deleted. */
const LEFTOVER = /^\.step-.*\.(unfinished|old)$/
/** The folder of a save that is in progress or was interrupted. */
const UNFINISHED = /^\.step-(\d+).*\.unfinished$/

/** A checkpoint whose files all exist and have the right sizes. */
export type Checkpoint = Awaited<ReturnType<typeof openFinished>>

/** A checkpoint that cannot be used, with the reason. */
export interface UnusableCheckpoint {
  readonly path: string
  readonly problem: string
}

/**
 * Lists the finished checkpoints in a folder, newest save first. Steps may be in another order, because a
 * job may resume from an earlier step. A checkpoint with an unreadable index has no `save` and comes first.
 */
async function listCheckpoints(directory: string) {
  const names = await readdir(directory).catch(noneIfMissing)
  const listed = await Promise.all(
    names
      .filter((name) => FINISHED.test(name))
      .map(async (name) => ({ name, save: await readSaveNumber(join(directory, name)) })),
  )
  const byName = (a: string, b: string) => a.localeCompare(b, 'en', { numeric: true })
  return listed.sort(
    (a, b) => (b.save ?? Infinity) - (a.save ?? Infinity) || byName(b.name, a.name),
  )
}

async function readSaveNumber(path: string): Promise<number | undefined> {
  try {
    const file = await openFileHandle(join(path, INDEX))
    try {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(HEAD), 0, HEAD, 0)
      return saveNumberIn(buffer.toString('utf8', 0, bytesRead))
    } finally {
      await file.close()
    }
  } catch {
    return undefined
  }
}

/** Reads the index of a checkpoint and checks that its files exist. */
async function openCheckpoint(path: string) {
  let contents: Contents
  try {
    contents = decodeContents(readFileText(join(path, INDEX)))
  } catch (cause) {
    const problem = isMissing(cause) ? `it has no ${INDEX}` : `${INDEX}: ${messageOf(cause)}`
    throw new Error(problem, { cause })
  }
  for (const [file, bytes] of Object.entries(contents.files)) {
    const found = await lstat(join(path, file)).catch(() => undefined)
    if (found === undefined) throw new Error(`${file} is missing`)
    // Reject links, which may lead to any file that this user can read.
    if (!found.isFile()) throw new Error(`${file} is not a regular file`)
    if (found.size !== bytes) {
      throw new Error(`${file} has ${found.size} bytes instead of ${bytes}`)
    }
  }
  return { path, contents }
}

/**
 * Returns the name of a new checkpoint, with a suffix if that step already has a checkpoint. Synchronous,
 * so that a background save returns soon.
 */
export function newName(directory: string, step: number): string {
  const name = `step-${String(step).padStart(8, '0')}`
  let names: string[] = []
  try {
    names = readdirSync(directory)
  } catch (error) {
    noneIfMissing(error)
  }
  const copies = names
    .filter((other) => FINISHED.test(other) && (other === name || other.startsWith(`${name}-`)))
    .map((other) => Number(FINISHED.exec(other)![1] ?? 0))
  return copies.length === 0 ? name : `${name}-${Math.max(...copies) + 1}`
}

/** Removes the folders of unfinished saves, creates the folder of a new save, and returns its number. */
export async function makeUnfinished(directory: string, path: string): Promise<number> {
  const made = makeFolders(directory)
  if (made !== undefined) await syncParents(directory, made)
  for (const other of await readdir(directory)) {
    if (LEFTOVER.test(other)) await rm(join(directory, other), { recursive: true, force: true })
  }
  await mkdir(path)
  const listed = await listCheckpoints(directory)
  return Math.max(0, ...listed.map(({ save }) => save ?? 0)) + 1
}

/** Writes the index of a checkpoint, checks that no file is missing, and renames its folder. */
export async function publish(path: string, final: string, index: string): Promise<void> {
  await writeDurably(join(path, INDEX), (file) => file.writeFile(index))
  await openCheckpoint(path).catch((error: unknown) => {
    throw new Error(`${messageOf(error)}: do all hosts have access to the same folder?`)
  })
  await rename(path, final)
  await syncFolder(dirname(final))
}

/** Flushes the directory entries of new folders to disk, from `last` up to `first`. */
async function syncParents(last: string, first: string) {
  for (let path = last; path.length >= first.length; path = dirname(path)) {
    await syncFolder(dirname(path))
  }
}

/** Deletes all but the `keep` newest checkpoints. Unreadable checkpoints count as the oldest. */
export async function prune(directory: string, keep: number): Promise<void> {
  const listed = await listCheckpoints(directory)
  listed.sort((a, b) => Number(a.save === undefined) - Number(b.save === undefined))
  for (const { name } of listed.slice(keep)) {
    // Rename the folder first, so that a partly deleted folder is not mistaken for a checkpoint.
    const old = join(directory, `.${name}.old`)
    await rename(join(directory, name), old)
    await rm(old, { recursive: true, force: true })
  }
}

function noneIfMissing(error: unknown): [] {
  if (isMissing(error)) return []
  throw error
}

function isMissing(error: unknown) {
  return codeOf(error) === 'ENOENT'
}

/** The newest usable checkpoint of a directory; see `latestCheckpoint`. */
export interface LatestCheckpoint {
  /** The folder of the checkpoint. */
  readonly path: string
  readonly step: number
  /**
   * Newer checkpoints that cannot be used: their save was interrupted or is in progress, or files are
   * missing or have wrong sizes. Also the folder itself, if it has an unrelated `index.json`.
   */
  readonly skipped: readonly UnusableCheckpoint[]
}

/**
 * Returns the newest complete checkpoint in a folder; undefined if there is none. Unfinished saves
 * do not count.
 *
 * @param directory - a checkpoint, or a folder with several checkpoints
 * @param group - all of its ranks must call this function; each returns the result of rank 0
 * @throws ERR_TSR_CHECKPOINT_UNFINISHED when there are checkpoints, but none is complete; ERR_TSR_ARGUMENT
 */
export async function latestCheckpoint(
  directory: string,
  group?: ProcessGroup,
): Promise<LatestCheckpoint | undefined> {
  return await latestFor('latestCheckpoint', directory, group)
}

/** Like `latestCheckpoint`, but called by the public function that `call` names. */
export async function latestFor(call: string, directory: string, group?: ProcessGroup) {
  const rank = group?.rank ?? 0
  const [latest] = await onAllRanks(group, call, async () =>
    rank === 0 ? ((await find(resolve(directory))) ?? null) : null,
  )
  return latest ?? undefined
}

async function find(directory: string): Promise<LatestCheckpoint | undefined> {
  const status = await stat(directory).catch(() => undefined)
  if (status?.isFile() === true) {
    throw argumentError(
      'directory',
      `the file ${directory}`,
      `the folder of a checkpoint, such as ${dirname(directory)}`,
    )
  }
  // The folder itself may have an `index.json` of another program or of an interrupted copy.
  const strays: UnusableCheckpoint[] = []
  if (existsSync(join(directory, INDEX))) {
    try {
      const { step } = (await openCheckpoint(directory)).contents
      return { path: directory, step, skipped: [] }
    } catch (error) {
      strays.push({ path: directory, problem: messageOf(error) })
    }
  }
  const skipped: UnusableCheckpoint[] = []
  for (const { name } of await listCheckpoints(directory)) {
    const path = join(directory, name)
    try {
      const { step } = (await openCheckpoint(path)).contents
      const unfinished = await unfinishedAfter(step, directory)
      return { path, step, skipped: [...unfinished, ...skipped, ...strays] }
    } catch (error) {
      skipped.push({ path, problem: messageOf(error) })
    }
  }
  const [unusable] = [...skipped, ...strays]
  if (unusable === undefined) return undefined
  throw tsrError('ERR_TSR_CHECKPOINT_UNFINISHED', { ...unusable })
}

async function unfinishedAfter(step: number, directory: string): Promise<UnusableCheckpoint[]> {
  const names = await readdir(directory)
  return names
    .filter((name) => Number(UNFINISHED.exec(name)?.[1] ?? -1) > step)
    .map((name) => ({ path: join(directory, name), problem: 'its save has not ended' }))
}

/** @throws ERR_TSR_CHECKPOINT_UNFINISHED */
export async function openFinished(path: string) {
  try {
    return await openCheckpoint(path)
  } catch (error) {
    const { message: problem } = error as Error
    throw tsrError('ERR_TSR_CHECKPOINT_UNFINISHED', { path, problem }, { cause: error })
  }
}
