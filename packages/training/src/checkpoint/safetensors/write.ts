import { open, rename, rm, type FileHandle } from 'node:fs/promises'
import { dirname } from 'node:path'
import { crc32 } from 'node:zlib'
import { tsrError } from '@tsrun/core'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { bytesOf, dtypeOf, type SafetensorsDType, type TensorValues } from './dtypes.ts'
import { encodeHeader, METADATA, type SafetensorsEntry } from './header.ts'

/** A tensor to write. */
export interface TensorData {
  readonly shape: readonly number[]
  /** The values in row-major order. */
  readonly values: TensorValues
  /**
   * The dtype in the file; default: the dtype of the array. Required for bool, and for float16 and
   * bfloat16 stored as bits in a Uint16Array.
   */
  readonly dtype?: SafetensorsDType
}

export interface WrittenFile {
  /** The size of the file. */
  readonly bytes: number
  /** The CRC-32 of each tensor by its name. */
  readonly checksums: ReadonlyMap<string, number>
}

/** The largest number of bytes in one write. Other work of this process can run between writes. */
const CHUNK = 16 * 1024 * 1024

/**
 * Writes a safetensors file, which Python's `safetensors` can read. The file gets its name when it
 * is complete and on disk.
 *
 * @param tensors - by name, in the order of the file
 * @param metadata - the strings of `__metadata__`
 * @param signal - if aborted before the end, no file is left and the reason of the signal is thrown
 * @throws ERR_TSR_ARGUMENT when the number of values of a tensor does not match its shape, or its
 *   name is `__metadata__`; errors of the file system (ENOSPC, EROFS, ...)
 *
 * @example
 * const weight = { shape: [2, 2], values: Float32Array.of(1, 2, 3, 4) }
 * await writeSafetensors('weights.safetensors', new Map([['weight', weight]]))
 */
export async function writeSafetensors(
  path: string,
  tensors: ReadonlyMap<string, TensorData>,
  metadata: Readonly<Record<string, string>> = {},
  signal?: AbortSignal,
): Promise<WrittenFile> {
  const entries = layOut(tensors)
  const header = encodeHeader({ entries, metadata })
  const checksums = new Map<string, number>()
  let bytes = header.length
  await writeDurably(path, async (file) => {
    await writeAll(file, header)
    for (const [name, { values }] of tensors) {
      const data = new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
      let checksum = 0
      for (let at = 0; at < data.length; at += CHUNK) {
        signal?.throwIfAborted()
        const chunk = data.subarray(at, at + CHUNK)
        checksum = crc32(chunk, checksum)
        await writeAll(file, chunk)
      }
      bytes += data.length
      checksums.set(name, checksum)
    }
  })
  return { bytes, checksums }
}

/** Writes a file under a temporary name, and renames it once it is on the disk. */
export async function writeDurably(
  path: string,
  write: (file: FileHandle) => Promise<void>,
): Promise<void> {
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

/** Error codes of file systems that cannot sync. Such a sync is skipped. */
const CANNOT_SYNC = ['EINVAL', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP', 'ENOTTY']
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

async function unless(codes: readonly string[], run: () => Promise<void>): Promise<void> {
  await run().catch((error: unknown) => {
    if (!codes.includes((error as NodeJS.ErrnoException).code ?? '')) throw error
  })
}

export async function writeAll(file: FileHandle, data: Uint8Array): Promise<void> {
  for (let at = 0; at < data.length;) {
    const { bytesWritten } = await file.write(data, at)
    at += bytesWritten
  }
}

function layOut(tensors: ReadonlyMap<string, TensorData>): Map<string, SafetensorsEntry> {
  const entries = new Map<string, SafetensorsEntry>()
  let begin = 0
  for (const [name, { shape, values, dtype = dtypeOf(values) }] of tensors) {
    if (name === METADATA) {
      const expected = `another name than ${METADATA}, which is reserved by the format`
      throw tsrError('ERR_TSR_ARGUMENT', { name: 'tensors', value: name, expected })
    }
    const end = begin + values.byteLength
    if (sizeOf(shape) * bytesOf(dtype) !== values.byteLength) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name,
        value: `an array of ${String(values.byteLength)} bytes`,
        expected: `as many bytes as ${dtype} [${shape.join(', ')}] has`,
      })
    }
    entries.set(name, { dtype, shape, begin, end })
    begin = end
  }
  return entries
}
