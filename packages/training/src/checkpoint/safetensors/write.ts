import { open, rename, rm, type FileHandle } from 'node:fs/promises'
import { dirname } from 'node:path'
import { argumentError, checkReplaceable } from '@tsrun/core'
import type { HeldValues } from '../../backend/held-values.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import type { Checks } from './checks.ts'
import { bytesOf, layoutOf, type SafetensorsDType, type TensorValues } from './dtypes.ts'
import { encodeHeader, METADATA, type SafetensorsEntry } from './header.ts'
import { streamTensors } from './stream.ts'

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

interface AnyTensorData extends Omit<TensorData, 'values'> {
  readonly values: TensorValues | HeldValues
}

/** The file that `writeSafetensors` has written. */
export interface WrittenFile {
  /** The size of the file. */
  readonly bytes: number
  /** The CRC-32 of each tensor by its name. */
  readonly checksums: ReadonlyMap<string, number>
}

/**
 * Writes a safetensors file, which Python's `safetensors` can read. The file gets its name when it
 * is complete and on disk.
 *
 * @param tensors - by name, in the order of the file
 * @param metadata - the strings of `__metadata__`
 * @param signal - if aborted before the end, no file is left and the reason of the signal is thrown
 * @throws ERR_TSR_ARGUMENT when the number of values of a tensor does not match its shape, or its
 *   name is `__metadata__`; an Error if the path is a device, a FIFO, a link or a folder; errors of the
 *   file system (ENOSPC, EROFS, ...)
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
  const { bytes, checks } = await writeTensors(path, tensors, [], metadata, signal)
  return {
    bytes,
    checksums: new Map([...tensors.keys()].map((name, i) => [name, checks[i]!.crc32])),
  }
}

/**
 * Like `writeSafetensors`, also for held values.
 *
 * @param others - tensors that are only checked
 * @returns the size of the file, and the checks of all tensors
 */
export async function writeTensors(
  path: string,
  tensors: ReadonlyMap<string, AnyTensorData>,
  others: readonly AnyTensorData['values'][],
  metadata: Readonly<Record<string, string>>,
  signal: AbortSignal | undefined,
) {
  const { entries, bytes } = layOut(tensors)
  const header = encodeHeader({ entries, metadata })
  const all = [...Array.from(tensors.values(), ({ values }) => values), ...others]
  let checks: readonly Checks[] = []
  await writeDurably(path, async (file) => {
    await writeAll(file, header, 0)
    const write = async (chunk: Uint8Array, place: number) => {
      if (place < bytes) await writeAll(file, chunk, header.length + place)
    }
    checks = await streamTensors(all, write, signal)
  })
  return { bytes: header.length + bytes, checks }
}

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

/** Error codes of file systems that cannot sync, and of Node's permission model, which forbids it. */
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

async function unless(codes: readonly string[], run: () => Promise<void>): Promise<void> {
  await run().catch((error: unknown) => {
    if (!codes.includes((error as NodeJS.ErrnoException).code ?? '')) throw error
  })
}

/**
 * Writes all of `data`, in as many writes as that takes.
 *
 * @param place - the position in the file; default: where the last write ended
 */
export async function writeAll(file: FileHandle, data: Uint8Array, place?: number): Promise<void> {
  for (let at = 0; at < data.length;) {
    const position = place === undefined ? null : place + at
    const { bytesWritten } = await file.write(data, at, data.length - at, position)
    at += bytesWritten
  }
}

function layOut(tensors: ReadonlyMap<string, AnyTensorData>) {
  const entries = new Map<string, SafetensorsEntry>()
  let begin = 0
  for (const [name, { shape, values, dtype: given }] of tensors) {
    const { bytes, dtype: usual } = layoutOf(values)
    const dtype = given ?? usual
    if (name === METADATA) {
      throw argumentError(
        'tensors',
        name,
        `another name than ${METADATA}, which is reserved by the format`,
      )
    }
    const end = begin + bytes
    if (sizeOf(shape) * bytesOf(dtype) !== bytes) {
      throw argumentError(
        name,
        `an array of ${bytes} bytes`,
        `as many bytes as ${dtype} [${shape.join(', ')}] has`,
      )
    }
    entries.set(name, { dtype, shape, begin, end })
    begin = end
  }
  return { entries, bytes: begin }
}
