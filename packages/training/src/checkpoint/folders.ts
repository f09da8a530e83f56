import { mkdir, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { decodeContents, INDEX, type Contents } from './contents.ts'
import { syncFolder } from './safetensors/write.ts'

const FINISHED = /^step-(\d+)(?:-(\d+))?$/
/** Not finished, or to be deleted. */
const LEFTOVER = /^\.step-.*\.(unfinished|old)$/

/** A checkpoint that is complete, as far as names and sizes tell. */
export interface Checkpoint {
  readonly path: string
  readonly contents: Contents
}

/** Why a checkpoint cannot be used. */
export interface UnusableCheckpoint {
  readonly path: string
  readonly problem: string
}

/** Names of the finished checkpoints in a folder, newest first. */
export async function listCheckpoints(directory: string): Promise<string[]> {
  const names = await readdir(directory).catch((error: unknown) => {
    if (isMissing(error)) return []
    throw error
  })
  const numbers = (name: string): number[] => {
    const [, step, attempt = '0'] = FINISHED.exec(name)!
    return [Number(step), Number(attempt)]
  }
  return names
    .filter((name) => FINISHED.test(name))
    .sort((a, b) => {
      const [[step, attempt], [otherStep, other]] = [numbers(b), numbers(a)]
      return step! - otherStep! || attempt! - other!
    })
}

/**
 * Reads the index of a checkpoint, and checks that its files are there.
 *
 * @throws Error that says what is wrong with it
 */
export async function openCheckpoint(path: string): Promise<Checkpoint> {
  const text = await readFile(join(path, INDEX), 'utf8').catch((error: unknown) => {
    throw new Error(isMissing(error) ? `it has no ${INDEX}` : String(error), { cause: error })
  })
  let contents: Contents
  try {
    contents = decodeContents(text)
  } catch (error) {
    throw new Error(`${INDEX} is damaged: ${(error as Error).message}`, { cause: error })
  }
  for (const [file, bytes] of Object.entries(contents.files)) {
    const found = await stat(join(path, file)).catch(() => undefined)
    if (found === undefined) throw new Error(`${file} is missing`)
    if (found.size !== bytes) {
      throw new Error(`${file} has ${String(found.size)} bytes, and not ${String(bytes)}`)
    }
  }
  return { path, contents }
}

/** The name of a new checkpoint: a step that is there already gets another number. */
export async function newName(directory: string, step: number): Promise<string> {
  const name = `step-${String(step).padStart(8, '0')}`
  const same = (await listCheckpoints(directory)).find(
    (other) => other === name || other.startsWith(`${name}-`),
  )
  if (same === undefined) return name
  return `${name}-${String(Number(FINISHED.exec(same)![2] ?? 0) + 1)}`
}

/** Makes the folder that a checkpoint is written to, and removes what others have not finished. */
export async function makeUnfinished(directory: string, name: string): Promise<string> {
  const made = await mkdir(directory, { recursive: true })
  if (made !== undefined) await syncParents(directory, made)
  for (const other of await readdir(directory)) {
    if (LEFTOVER.test(other)) await rm(join(directory, other), { recursive: true, force: true })
  }
  const path = join(directory, `.${name}.unfinished`)
  await mkdir(path)
  return path
}

/** Makes the names of new folders last, from `first` down to `last`. */
async function syncParents(last: string, first: string): Promise<void> {
  for (let path = last; path.length >= first.length; path = dirname(path)) {
    await syncFolder(dirname(path))
  }
}

/** Removes all checkpoints but `newest` and, of the others, those of the `keep` - 1 highest steps. */
export async function prune(directory: string, newest: string, keep: number): Promise<void> {
  // a job that has gone back to an older one saves steps below those of others
  const others = (await listCheckpoints(directory)).filter((name) => name !== newest)
  for (const name of others.slice(keep - 1)) {
    // first its name: nobody takes a half of it for a checkpoint
    const old = join(directory, `.${name}.old`)
    await rename(join(directory, name), old)
    await rm(old, { recursive: true, force: true })
  }
}

export function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ENOENT'
}
