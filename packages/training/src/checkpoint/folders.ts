import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { decodeContents, HEAD, INDEX, saveNumberIn, type Contents } from './contents.ts'
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

/** A checkpoint by its name. */
interface ListedCheckpoint {
  readonly name: string
  /** See `Contents`; undefined where the index cannot be read. */
  readonly save: number | undefined
}

/**
 * The finished checkpoints in a folder, the last one that was saved first: a job that has gone back
 * saves lower steps than one before. Those whose index cannot be read come before all others.
 */
export async function listCheckpoints(directory: string): Promise<ListedCheckpoint[]> {
  const names = await readdir(directory).catch((error: unknown) => {
    if (isMissing(error)) return []
    throw error
  })
  const listed = await Promise.all(
    names
      .filter((name) => FINISHED.test(name))
      .map(async (name) => ({ name, save: await readSaveNumber(join(directory, name)) })),
  )
  return listed.sort((a, b) => {
    if (a.save !== b.save) return (b.save ?? Infinity) - (a.save ?? Infinity)
    const [[step, attempt], [otherStep, other]] = [numbersIn(b.name), numbersIn(a.name)]
    return step - otherStep || attempt - other
  })
}

function numbersIn(name: string): [step: number, attempt: number] {
  const [, step, attempt = '0'] = FINISHED.exec(name)!
  return [Number(step), Number(attempt)]
}

async function readSaveNumber(path: string): Promise<number | undefined> {
  try {
    const file = await open(join(path, INDEX))
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

/** What a new checkpoint is called: a step that is there already gets another number. */
export async function newPlace(
  directory: string,
  step: number,
): Promise<{ readonly name: string; readonly save: number }> {
  const listed = await listCheckpoints(directory)
  const name = `step-${String(step).padStart(8, '0')}`
  const attempts = listed
    .map((other) => other.name)
    .filter((other) => other === name || other.startsWith(`${name}-`))
    .map((other) => numbersIn(other)[1])
  return {
    name: attempts.length === 0 ? name : `${name}-${String(Math.max(...attempts) + 1)}`,
    save: Math.max(0, ...listed.map(({ save }) => save ?? 0)) + 1,
  }
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

/** Removes all checkpoints but the `keep` newest; what cannot be read goes before what can. */
export async function prune(directory: string, keep: number): Promise<void> {
  const listed = await listCheckpoints(directory)
  const readable = listed.filter(({ save }) => save !== undefined)
  const others = listed.filter(({ save }) => save === undefined)
  for (const { name } of [...readable, ...others].slice(keep)) {
    // first its name: nobody takes a half of it for a checkpoint
    const old = join(directory, `.${name}.old`)
    await rename(join(directory, name), old)
    await rm(old, { recursive: true, force: true })
  }
}

export function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ENOENT'
}
