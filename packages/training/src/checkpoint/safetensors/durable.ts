import { open, rename, rm, type FileHandle } from 'node:fs/promises'
import { dirname } from 'node:path'
import { checkReplaceable, codeOf } from '@tsrun/core'

/** Writes a file under a temporary name, and renames it once it is on the disk. */
export async function writeDurably(
  path: string,
  write: (file: FileHandle) => Promise<void>,
): Promise<void> {
  checkReplaceable(path)
  const unfinished = `${path}.unfinished`
  // Delete a file that an earlier process left or an attacker planted. Never write to it.
  await rm(unfinished, { force: true })
  const file = await open(unfinished, 'wx')
  try {
    await write(file)
    await unless(CANNOT_SYNC, () => file.sync())
    await file.close()
    await rename(unfinished, path)
  } catch (error) {
    await file.close().catch(() => undefined)
    await rm(unfinished, { force: true }).catch(() => undefined)
    throw error
  }
  await syncFolder(dirname(path))
}

/** Error codes of file systems that cannot sync, and of Node's permission model, which forbids syncing. */
const CANNOT_SYNC = ['EINVAL', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP', 'ENOTTY', 'ERR_ACCESS_DENIED']
/** More error codes for folders: on Windows, SMB and FUSE, folders may not open as files. */
const CANNOT_SYNC_FOLDERS = [...CANNOT_SYNC, 'EACCES', 'EBADF', 'EISDIR', 'EPERM']

/** Flushes the directory entries of a folder to disk, if its file system can. */
export async function syncFolder(path: string): Promise<void> {
  await unless(CANNOT_SYNC_FOLDERS, async () => {
    const folder = await open(path, 'r')
    try {
      await folder.sync()
    } finally {
      await folder.close()
    }
  })
}

async function unless(codes: readonly string[], run: () => Promise<void>) {
  await run().catch((error: unknown) => {
    if (!codes.includes(codeOf(error))) throw error
  })
}
