import { MessageChannel } from 'node:worker_threads'
import type { HeldValues } from '../backend/held-values.ts'
import { inThisThread, inWriter, type Writer } from './writer.ts'
import type { Checks } from './safetensors/checks.ts'
import type { ChunkFile, ChunkMessage, TensorChunk } from './safetensors/chunks.ts'
import { bytesOf, layoutOf, toValues, type TensorValues } from './safetensors/dtypes.ts'

/** The bytes of a chunk. All that are free are filled at once, in about a millisecond. */
const CHUNK = 1024 * 1024
/** The number of chunks that are written and checked at one time. */
const UNDER_WAY = 8
/** The largest number of tensors in a chunk, because each read of a device takes time. */
const PARTS = 16

/** Whether a thread writes tensors of this size together. */
export const isLarge = (bytes: number): boolean => bytes > CHUNK

/** Memory for chunks that no save uses. */
const spare: SharedArrayBuffer[] = []

type Values = TensorValues | HeldValues

/** Chooses the thread that checks and writes these tensors. */
export function writerFor(tensors: readonly Values[]): Writer {
  const bytes = tensors.reduce((sum, values) => sum + layoutOf(values).bytes, 0)
  return isLarge(bytes) ? inWriter : inThisThread
}

/**
 * Reads tensors chunk by chunk into memory that is used again, has them checked and written, and
 * releases them. Other work of this process can run between chunks.
 *
 * @param file - receives the first tensors; the others are only checked
 * @returns the checks of each tensor
 */
export async function streamTensors(
  tensors: readonly Values[],
  writer: Writer,
  file: ChunkFile | undefined,
  signal: AbortSignal | undefined,
): Promise<Checks[]> {
  const { port1: port, port2 } = new MessageChannel()
  const written = writer('writeChunks', [port2, tensors.length, file], [port2])
  const freed: (() => void)[] = []
  port.on('message', () => {
    freed.shift()!()
  })
  const send = (message: ChunkMessage) => {
    port.postMessage(message)
  }
  const chunks = Array.from(
    { length: UNDER_WAY },
    () => spare.pop() ?? new SharedArrayBuffer(CHUNK),
  )
  const free: (SharedArrayBuffer | Promise<SharedArrayBuffer>)[] = [...chunks]
  let memory: SharedArrayBuffer | undefined
  let used = 0
  let parts: TensorChunk[] = []
  const flush = () => {
    if (memory === undefined) return
    const kept = memory
    send(parts)
    free.push(
      new Promise((resolve) => {
        freed.push(() => {
          resolve(kept)
        })
      }),
    )
    memory = undefined
    used = 0
    parts = []
  }
  try {
    for (const [tensor, values] of tensors.entries()) {
      const { dtype } = layoutOf(values)
      for (let at = 0; at < values.length;) {
        signal?.throwIfAborted()
        memory ??= (await Promise.race([free.shift()!, written])) as SharedArrayBuffer
        const length = Math.min(values.length - at, (CHUNK - used) / bytesOf(dtype))
        const chunk = toValues(dtype, memory, length, used)
        if ('read' in values) await values.read(chunk as Float32Array, at)
        else chunk.set(values.subarray(at, at + length) as never)
        parts.push({ tensor, values: chunk })
        at += length
        // A multiple of the size of any value.
        used = Math.ceil((used + chunk.byteLength) / 8) * 8
        if (used === CHUNK || parts.length === PARTS) flush()
      }
      if ('read' in values) values.release()
    }
    flush()
    send(null)
    const checks = await written
    if (spare.length === 0) spare.push(...chunks)
    return checks
  } catch (error) {
    send('cancel')
    await written.catch(() => undefined)
    throw error
  } finally {
    port.close()
  }
}
