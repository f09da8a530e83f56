import {
  closeSync,
  constants,
  fstatSync,
  mkdirSync,
  openSync,
  readSync,
  statSync,
  type BigIntStats,
} from 'node:fs'
import { open, type FileHandle } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'

/*
 * Files of which somebody has given the name. One that is no regular file may never answer: a FIFO without a
 * writer, a terminal, /dev/zero. Nor does Node's recursive mkdir in a file system such as /proc.
 */

/** The most bytes of a file that is read as a whole, unless the caller says otherwise. */
const MOST_BYTES = 2 ** 28

/**
 * Opens a regular file, by default to read it.
 *
 * @param flags - as of open(2), a number
 * @throws Error that says what it is if it is no regular file, or as `openSync`
 */
export function openFile(path: string, flags = constants.O_RDONLY, mode?: number): number {
  refuseOthers(path, statusOf(path))
  let fd: number
  try {
    // Another file may have taken its place.
    fd = openSync(path, flags | constants.O_NONBLOCK, mode)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ELOOP') throw error
    throw new Error(`${path} is a symbolic link, which is not followed`, { cause: error })
  }
  try {
    refuseOthers(path, fstatSync(fd, { bigint: true }))
    return fd
  } catch (error) {
    closeSync(fd)
    throw error
  }
}

/** As `openFile`, without waiting. */
export async function openFileHandle(
  path: string,
  flags = constants.O_RDONLY,
): Promise<FileHandle> {
  refuseOthers(path, statusOf(path))
  const file = await open(path, flags | constants.O_NONBLOCK)
  try {
    refuseOthers(path, await file.stat({ bigint: true }))
    return file
  } catch (error) {
    await file.close()
    throw error
  }
}

/**
 * Reads a regular file.
 *
 * @param most - bytes
 * @throws Error if it is larger, or as `openFile`
 */
export function readFileBytes(path: string, most = MOST_BYTES): Buffer<ArrayBuffer> {
  const fd = openFile(path)
  try {
    const { size } = fstatSync(fd)
    const refusal = `${path} has more than ${most / 2 ** 20} MiB`
    if (size > most) throw new Error(refusal)
    // A file of /proc has no size, and any other may grow.
    const chunks: Buffer[] = []
    for (let length = 0, wanted = size + 1; ; wanted = 2 ** 16) {
      const chunk = Buffer.allocUnsafeSlow(Math.min(wanted, 2 ** 30))
      const read = readSync(fd, chunk)
      if (read === 0)
        return chunks.length === 1 ? (chunks[0] as Buffer<ArrayBuffer>) : Buffer.concat(chunks)
      length += read
      if (length > most) throw new Error(refusal)
      chunks.push(chunk.subarray(0, read))
    }
  } finally {
    closeSync(fd)
  }
}

/** As `readFileBytes`, as UTF-8. */
export function readFileText(path: string, most?: number): string {
  return readFileBytes(path, most).toString('utf8')
}

/**
 * Makes a folder, and those that it is in.
 *
 * @returns the first one that it has made, if any
 * @throws as `mkdirSync`
 */
export function makeFolders(path: string, mode?: number): string | undefined {
  const missing: string[] = []
  let parent = resolve(path)
  for (; statusOf(parent) === undefined; parent = dirname(parent)) missing.unshift(parent)
  // Says so if it is no folder.
  if (missing.length === 0) makeFolder(parent, mode)
  for (const folder of missing) makeFolder(folder, mode)
  return missing[0]
}

function makeFolder(path: string, mode: number | undefined): void {
  try {
    mkdirSync(path, { mode })
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'EEXIST' && statusOf(path)?.isDirectory() === true) return
    if (code !== 'ENOENT' || statusOf(dirname(path)) === undefined) throw error
    throw new Error(`the file system of ${dirname(path)} has no place for new folders`, {
      cause: error,
    })
  }
}

/** With `bigint`, because of a fault of Node; see `statusOf` of @tsrun/native. */
function statusOf(path: string): BigIntStats | undefined {
  return statSync(path, { bigint: true, throwIfNoEntry: false })
}

function refuseOthers(path: string, status: BigIntStats | undefined): void {
  if (status === undefined || status.isFile()) return
  const kind = status.isDirectory()
    ? 'a folder'
    : status.isFIFO()
      ? 'a FIFO'
      : status.isSocket()
        ? 'a socket'
        : 'a device'
  throw new Error(`${path} is ${kind}, not a regular file`)
}
