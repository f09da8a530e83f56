import { on } from 'node:events'
import { readSync } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import type { MessagePort } from 'node:worker_threads'
import { crc32 } from 'node:zlib'
import { writeWhole } from '@tsrun/core'
import { writeDurably } from './durable.ts'
import type { TensorValues } from './dtypes.ts'

/** The next values of a tensor. `tensor` is its index. */
export interface TensorChunk {
  readonly tensor: number
  readonly values: TensorValues
  /** The memory to read the values from. If absent, the array contains them. */
  readonly source?: MemorySource | undefined
}

/** A place in the memory of this process. */
interface MemorySource {
  /** The file descriptor of the memory; see `openOwnMemory`. */
  readonly file: number
  readonly address: number
}

/** A file of tensors to write. */
export interface ChunkFile {
  readonly path: string
  readonly header: Uint8Array
  /** The total bytes of the tensors to write, which arrive first. Later tensors are only checked. */
  readonly bytes: number
}

/** A chunk, null at the end, or `cancel`. The writer answers a chunk when its memory can be reused. */
export type ChunkMessage = readonly TensorChunk[] | 'cancel' | null

/** Checks `count` tensors that arrive in chunks at a port, and writes their file. */
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
      for (const { tensor, values, source } of message.flatMap(cut)) {
        if (source !== undefined) fill(values, source)
        checks[tensor] = check(values, checks[tensor])
        if (left === 0) continue
        // Write synchronously: this thread has a lower priority than Node's thread pool.
        writeWhole(handle!.fd, new Uint8Array(values.buffer, values.byteOffset, values.byteLength))
        left -= values.byteLength
      }
      port.postMessage('free')
    }
  }
  try {
    if (file === undefined) await take()
    else {
      await writeDurably(file.path, async (handle) => {
        writeWhole(handle.fd, file.header)
        await take(handle)
      })
    }
  } finally {
    port.close()
  }
  return checks.map((found) => found ?? { crc32: 0 })
}

/** The number of values that are checked and written together, so that they stay in the caches. */
const SLICE = 65_536

/** Divides a part into slices. If the part has a source, all slices are read into the same memory. */
function cut({ tensor, values, source }: TensorChunk): TensorChunk[] {
  return Array.from({ length: Math.ceil(values.length / SLICE) }, (_, i) => {
    const at = i * SLICE
    const end = Math.min(at + SLICE, values.length)
    if (source === undefined) return { tensor, values: values.subarray(at, end) }
    const address = source.address + at * values.BYTES_PER_ELEMENT
    return { tensor, values: values.subarray(0, end - at), source: { ...source, address } }
  })
}

/** @throws Error if the memory does not exist */
function fill(values: TensorValues, { file, address }: MemorySource) {
  const { byteLength } = values
  if (readSync(file, values, 0, byteLength, address) === byteLength) return
  throw new Error(`the memory at ${address} could not be read`)
}

/** The results of checking the values of a tensor. */
export interface Checks {
  readonly crc32: number
  /** The first NaN or infinite value, if any. */
  readonly notFinite?: number | undefined
}

function check(values: TensorValues, former?: Checks): Checks {
  return {
    crc32: crc32(values, former?.crc32),
    notFinite: former?.notFinite ?? firstNotFinite(values),
  }
}

/** Returns the first NaN or infinite value; undefined if there is none. */
export function firstNotFinite(values: TensorValues): number | undefined {
  if (!values[Symbol.toStringTag].startsWith('Float')) return undefined
  const whole = values.length - (values.length % 4)
  // A value times 0 is NaN unless the value is finite. Summing these products takes half the time of
  // testing each value.
  let [a, b, c, d] = [0, 0, 0, 0]
  for (let i = 0; i < whole; i += 4) {
    a += Number(values[i]) * 0
    b += Number(values[i + 1]) * 0
    c += Number(values[i + 2]) * 0
    d += Number(values[i + 3]) * 0
  }
  let i = a + b + c + d === 0 ? whole : 0
  while (i < values.length && Number.isFinite(values[i])) i++
  return i < values.length ? Number(values[i]) : undefined
}
