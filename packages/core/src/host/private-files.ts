import { constants, lstatSync, renameSync, rmSync, writeFileSync, writeSync } from 'node:fs'
import { makeFolders, openFile } from './files.ts'

/*
 * Writes files in folders that other users can write to. Another user may have planted a link under
 * a predictable name there, so that this process would overwrite a file that the link points to.
 */

const OWN_FILE = 0o600
const OWN_FOLDER = 0o700

/**
 * Makes a folder and its missing parents. Only this user gets access. Existing folders keep their
 * permissions.
 */
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
  const { O_APPEND, O_CREAT, O_NOFOLLOW, O_TRUNC, O_WRONLY } = constants
  return openFile(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW, OWN_FILE)
}

/**
 * Writes all bytes, because `writeSync` may write fewer on a nearly full disk.
 * @throws the errors of `writeSync`, such as ENOSPC
 */
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
