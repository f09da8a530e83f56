import { constants, lstatSync, renameSync, rmSync, writeFileSync, writeSync } from 'node:fs'
import { makeFolders, openFile } from './files.ts'

/*
 * Files in folders where other users may write. A predictable name may exist already, as a link by which
 * another user wants to overwrite a file of this user.
 */

const OWN_FILE = 0o600
const OWN_FOLDER = 0o700

/** Makes a folder, and those that it is in, which only this user can enter. One that exists stays as it is. */
export function makeOwnFolder(path: string): void {
  makeFolders(path, OWN_FOLDER)
}

/** Opens a new or an emptied file that only this user can read. @throws Error for a link, and as `openFile` */
export function openOwnFile(path: string): number {
  const { O_CREAT, O_NOFOLLOW, O_TRUNC, O_WRONLY } = constants
  return openFile(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, OWN_FILE)
}

/** Writes all bytes, where `writeSync` leaves what a nearly full disk has no room for. @throws ENOSPC, ... */
export function writeWhole(fd: number, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at)
}

/**
 * Replaces a file atomically: a reader sees either the whole old one or the whole new one.
 *
 * @param mode - the rights of the new one, reduced by the umask; default: this user's alone
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
 * Why code of this folder must not be run: another user, who is not root, can change it. Undefined where
 * nothing speaks against it, also where there is no such folder.
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
  // sudo keeps the folder of the user who has the rights of root already
  const isCaller = own === 0 && String(uid) === process.env['SUDO_UID']
  if (uid !== own && uid !== 0 && !isCaller)
    return `it belongs to the user with the number ${String(uid)}`
  const isOpen = (mode & 0o002) !== 0 && !status.isSymbolicLink()
  return isOpen ? 'every user of this host can write to it' : undefined
}
