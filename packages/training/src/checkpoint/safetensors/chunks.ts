import { on } from 'node:events'
import { writeSync } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import type { MessagePort } from 'node:worker_threads'
import { check, type Checks } from './checks.ts'
import { writeAll, writeDurably } from './durable.ts'
import type { TensorValues } from './dtypes.ts'

/** The next values of a tensor, by the number of the tensor. */
export interface TensorChunk {
  readonly tensor: number
  readonly values: TensorValues
}

/** A file of tensors to write. */
export interface ChunkFile {
  readonly path: string
  readonly header: Uint8Array
  /** The bytes of its tensors, which come first. Further tensors are only checked. */
  readonly bytes: number
}

/**
 * What a save sends through its port: chunks, which are answered when their memory is free; at the end
 * null; or `cancel` to remove the file.
 */
export type ChunkMessage = readonly TensorChunk[] | 'cancel' | null

/**
 * Checks the tensors that arrive in chunks at a port, and writes their file.
 *
 * @param count - of tensors
 * @returns the checks of each tensor
 */
export async function writeChunks(
  port: MessagePort,
  count: number,
  file: ChunkFile | undefined,
): Promise<Checks[]> {
  const checks = Array.from({ length: count }, (): Checks | undefined => undefined)
  let left = file?.bytes ?? 0
  const take = async (handle?: FileHandle) => {
    for await (const [message] of on(port, 'message') as AsyncIterable<[ChunkMessage]>) {
      if (message === null) return
      if (message === 'cancel') throw new Error('the save was cancelled')
      for (const { tensor, values } of message) {
        checks[tensor] = check(values, checks[tensor])
        if (left === 0) continue
        writeWhole(handle!.fd, values)
        left -= values.byteLength
      }
      port.postMessage('free')
    }
  }
  try {
    if (file === undefined) await take()
    else {
      await writeDurably(file.path, async (handle) => {
        await writeAll(handle, file.header)
        await take(handle)
      })
    }
  } finally {
    port.close()
  }
  return checks.map((found) => found ?? { crc32: 0 })
}

/** Writes in this thread, which has a lower priority than those of Node's asynchronous calls. */
function writeWhole(file: number, values: TensorValues): void {
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
  for (let at = 0; at < bytes.length;) at += writeSync(file, bytes, at)
}
