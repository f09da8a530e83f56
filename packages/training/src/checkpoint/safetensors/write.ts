import { open, rename, rm, type FileHandle } from 'node:fs/promises'
import { dirname } from 'node:path'
import { crc32 } from 'node:zlib'
import { tsrError } from '@tsrun/core'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { bytesOf, dtypeOf, type SafetensorsDType, type TensorValues } from './dtypes.ts'
import { encodeHeader, METADATA, type SafetensorsEntry } from './header.ts'

/** A tensor to be written. */
export interface TensorData {
  readonly shape: readonly number[]
  /** In row-major order. */
  readonly values: TensorValues
  /** Default: that of the array; needed for float16 and bfloat16 (bits in a Uint16Array), and bool. */
  readonly dtype?: SafetensorsDType
}

export interface WrittenFile {
  /** Of the whole file. */
  readonly bytes: number
  /** By name of the tensor: CRC-32 of its bytes. */
  readonly checksums: ReadonlyMap<string, number>
}

/** Most that is written at once, so that others get their turn. */
const CHUNK = 16 * 1024 * 1024

/**
 * Writes a safetensors file, as Python's `safetensors` reads it. It gets its name when all is on the
 * disk: whoever sees it sees all of it.
 *
 * @param tensors - by name, in this order
 * @param metadata - text for `__metadata__`
 * @param signal - leaves no file when it is aborted before the end, and throws its reason
 * @throws ERR_TSR_ARGUMENT when a tensor has another number of values than its shape says, or the name
 *   `__metadata__`; what the file system says (ENOSPC, EROFS, ...)
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

/** Writes a file under another name, and gives it its own when it is on the disk. */
export async function writeDurably(
  path: string,
  write: (file: FileHandle) => Promise<void>,
): Promise<void> {
  const unfinished = `${path}.unfinished`
  const file = await open(unfinished, 'w')
  try {
    await write(file)
    await file.sync()
    await file.close()
    await rename(unfinished, path)
  } catch (error) {
    await file.close().catch(() => undefined)
    await rm(unfinished, { force: true }).catch(() => undefined)
    throw error
  }
  await syncFolder(dirname(path))
}

/** Makes the names in a folder last. Not every system can. */
export async function syncFolder(path: string): Promise<void> {
  if (process.platform === 'win32') return
  const folder = await open(path, 'r')
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}

/** A write may write less than it was given. */
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
      const expected = `another name than ${METADATA}, which the format keeps for itself`
      throw tsrError('ERR_TSR_ARGUMENT', { name: 'tensors', value: name, expected })
    }
    const end = begin + values.byteLength
    if (sizeOf(shape) * bytesOf(dtype) !== values.byteLength) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name,
        value: `an array of ${String(values.byteLength)} bytes`,
        expected: `as many as ${dtype} [${shape.join(', ')}] has`,
      })
    }
    entries.set(name, { dtype, shape, begin, end })
    begin = end
  }
  return entries
}
