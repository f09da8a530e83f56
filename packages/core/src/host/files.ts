import {
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
  type BigIntStats,
} from 'node:fs'
import { open, type FileHandle } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'

/*
 * Opens files and makes folders whose names come from users. Only regular files are opened, because
 * opening a FIFO without a writer, a terminal or /dev/zero may block forever. Node's recursive
 * mkdir is not used, because it may block forever in a file system such as /proc.
 */

/** Default limit in bytes for reading a whole file. */
const MOST_BYTES = 2 ** 28

const { O_APPEND, O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_TRUNC, O_WRONLY } = constants

/**
 * Opens a regular file, by default for reading. With O_CREAT, rejects a file that another user may have
 * planted.
 *
 * @param flags - numeric flags of open(2)
 * @throws Error that names the type if the file is not regular, and the errors of `openSync`
 */
export function openFile(path: string, flags = O_RDONLY, mode?: number): number {
  refuseOthers(path, statusOf(path))
  if ((flags & O_CREAT) === 0) return openChecked(path, flags)
  try {
    return openSync(path, flags | O_EXCL, mode)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  const found = lstatSync(path, { bigint: true })
  refusePlanted(path, found, path)
  const real = found.isSymbolicLink() ? targetOf(path) : path
  // Truncate the file only after its owner was checked.
  const fd = openChecked(path, flags & ~O_TRUNC, mode, (status) => {
    refusePlanted(path, status, real)
  })
  if ((flags & O_TRUNC) !== 0) ftruncateSync(fd)
  return fd
}

/** Opens a file before checking it, because another file may take its name after a check. */
function openChecked(
  path: string,
  flags: number,
  mode?: number,
  check?: (status: BigIntStats) => void,
) {
  let fd: number
  try {
    fd = openSync(path, flags | O_NONBLOCK, mode)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ELOOP') throw error
    throw new Error(`${path} is a symbolic link, which is not followed`, { cause: error })
  }
  try {
    const status = fstatSync(fd, { bigint: true })
    refuseOthers(path, status)
    check?.(status)
    return fd
  } catch (error) {
    closeSync(fd)
    throw error
  }
}

/** Opens a regular file for reading, like `openFile`, but asynchronously. */
export async function openFileHandle(path: string): Promise<FileHandle> {
  refuseOthers(path, statusOf(path))
  const file = await open(path, O_RDONLY | O_NONBLOCK)
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
 * @param most - limit in bytes
 * @throws Error if the file is larger, and the errors of `openFile`
 */
export function readFileBytes(path: string, most = MOST_BYTES): Buffer<ArrayBuffer> {
  const fd = openFile(path)
  try {
    const { size } = fstatSync(fd)
    const refusal = `${path} has more than ${most / 2 ** 20} MiB`
    if (size > most) throw new Error(refusal)
    // Files of /proc report size 0, and other files may grow.
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

/** Reads a regular file as UTF-8, like `readFileBytes`. */
export function readFileText(path: string, most?: number): string {
  return readFileBytes(path, most).toString('utf8')
}

/** The names in a folder, and in its subfolders if `recursive`; none if it cannot be read. */
export function namesIn(folder: string, recursive = false): string[] {
  try {
    return readdirSync(folder, { recursive, encoding: 'utf8' })
  } catch {
    return []
  }
}

/**
 * Makes a folder and its missing parents.
 *
 * @returns the outermost folder that it made, if any
 * @throws the errors of `mkdirSync`
 */
export function makeFolders(path: string, mode?: number): string | undefined {
  const missing: string[] = []
  let parent = resolve(path)
  for (; statusOf(parent) === undefined; parent = dirname(parent)) missing.unshift(parent)
  // The folder exists already. Throw if it is a file.
  if (missing.length === 0) makeFolder(parent, mode)
  for (const folder of missing) makeFolder(folder, mode)
  return missing[0]
}

function makeFolder(path: string, mode: number | undefined) {
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

/** Uses `bigint` because of a bug in Node that `statusOf` of @tsrun/native explains. */
function statusOf(path: string): BigIntStats | undefined {
  return statSync(path, { bigint: true, throwIfNoEntry: false })
}

/** Returns the target of a link, or the link itself if it is dangling. */
function targetOf(link: string) {
  try {
    return realpathSync(link)
  } catch {
    return link
  }
}

/**
 * Rejects files that other users may have planted in a shared folder. Linux itself rejects such files only
 * in sticky folders, and only if `fs.protected_regular`, `fs.protected_symlinks` and
 * `fs.protected_hardlinks` are set.
 *
 * @param real - the path with links resolved
 */
function refusePlanted(path: string, { uid, nlink }: BigIntStats, real: string) {
  const own = process.geteuid?.()
  const folder = statusOf(dirname(resolve(real)))
  if (own === undefined || folder === undefined) return
  const isShared = (folder.mode & 0o002n) !== 0n || (folder.mode & 0o1020n) === 0o1020n
  if (!isShared) return
  if (uid !== BigInt(own) && uid !== folder.uid) {
    const owner = `belongs to the user with the number ${String(uid)}`
    throw new Error(
      `${path} ${owner}, in a folder that others can write to: use a folder of your own`,
    )
  }
  if (nlink > 1n)
    throw new Error(
      `${path} has other names (hard links), which others may have made: use a folder of your own`,
    )
}

/**
 * Checks the target of a rename. Replacing a device, a FIFO or a link such as /dev/stdout would remove
 * it from the machine.
 *
 * @throws Error that names the type if the path exists and is not a regular file
 */
export function checkReplaceable(path: string): void {
  refuseOthers(path, lstatSync(path, { bigint: true, throwIfNoEntry: false }))
}

const otherKinds = [
  ['isDirectory', 'a folder'],
  ['isSymbolicLink', 'a symbolic link'],
  ['isFIFO', 'a FIFO'],
  ['isSocket', 'a socket'],
] as const

function refuseOthers(path: string, status: BigIntStats | undefined) {
  if (status === undefined || status.isFile()) return
  const found = otherKinds.find(([isKind]) => status[isKind]())
  throw new Error(`${path} is ${found?.[1] ?? 'a device'}, not a regular file`)
}

/*
 * Writes files in folders that other users can write to. Another user may have planted a link under
 * a predictable name there, so that this process would overwrite a file that the link points to.
 */

const OWN_FILE = 0o600
const OWN_FOLDER = 0o700

/** Makes a folder and its missing parents for this user only. Existing ones keep their permissions. */
export function makeOwnFolder(path: string): void {
  makeFolders(path, OWN_FOLDER)
}

/**
 * Creates or truncates a file that only this user can read. Writes append, so that another program may
 * truncate the file while it is open, as logrotate does.
 *
 * @throws Error for a link, and the errors of `openFile`
 */
export function openOwnFile(path: string): number {
  return openFile(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW, OWN_FILE)
}

/** Writes all bytes. `writeSync` may write fewer on a nearly full disk, and its errors are thrown. */
export function writeWhole(fd: number, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at)
}

/**
 * Replaces a file atomically: a reader sees either the whole old file or the whole new one.
 *
 * @param mode - permissions of the new file before the umask; default: this user only
 */
export function replaceFile(path: string, text: string, mode = OWN_FILE): void {
  const unfinished = `${path}.${crypto.randomUUID()}`
  try {
    writeFileSync(unfinished, text, { flag: 'wx', mode })
    renameSync(unfinished, path)
  } catch (error) {
    rmSync(unfinished, { force: true })
    throw error
  }
}

/**
 * Returns why code in a folder must not be run: a user other than root and the current user can
 * change it. Returns undefined if the folder is safe or does not exist.
 */
export function distrustOf(folder: string): string | undefined {
  const own = process.geteuid?.()
  if (own === undefined) return undefined
  let status
  try {
    status = lstatSync(folder)
  } catch {
    return undefined
  }
  const { uid, mode } = status
  // Under sudo, trust the calling user, who has root's rights anyway.
  const isCaller = own === 0 && String(uid) === process.env['SUDO_UID']
  if (uid !== own && uid !== 0 && !isCaller) return `it belongs to the user with the number ${uid}`
  const isOpen = (mode & 0o002) !== 0 && !status.isSymbolicLink()
  return isOpen ? 'every user of this host can write to it' : undefined
}
