import { MessageChannel } from 'node:worker_threads'
import { argumentError } from '@tsrun/core'
import { addressOf } from '@tsrun/native'
import type { HeldValues } from '../backend/held-values.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { openOwnMemory } from './own-memory.ts'
import type { Checks, ChunkFile, ChunkMessage, TensorChunk } from './safetensors/chunks.ts'
import {
  bytesOf,
  layoutOf,
  toValues,
  type SafetensorsDType,
  type TensorValues,
} from './safetensors/dtypes.ts'
import { encodeHeader, METADATA, type SafetensorsEntry } from './safetensors/format.ts'
import { inThisThread, inWriter, type Writer } from './writer.ts'

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

type Values = TensorValues | HeldValues

interface AnyTensorData extends Omit<TensorData, 'values'> {
  readonly values: Values
}

/**
 * Writes a safetensors file, which Python's `safetensors` can read. The file gets its name when it
 * is complete and on disk.
 *
 * @param tensors - by name, in the order of the file
 * @param metadata - the strings of `__metadata__`
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
): Promise<void> {
  const values = Array.from(tensors.values(), (tensor) => tensor.values)
  await writeTensors(path, tensors, [], metadata, writerFor(values))
}

/**
 * Like `writeSafetensors`, but also takes `HeldValues`.
 *
 * @param path - if undefined, only checks the tensors
 * @param others - tensors that are only checked
 * @returns the size of the file, and the results of checking all tensors
 */
export async function writeTensors(
  path: string | undefined,
  tensors: ReadonlyMap<string, AnyTensorData>,
  others: readonly Values[],
  metadata: Readonly<Record<string, string>>,
  writer: Writer,
) {
  const { entries, bytes } = layOut(tensors)
  const header = encodeHeader({ entries, metadata })
  const all = [...Array.from(tensors.values(), ({ values }) => values), ...others]
  const file = path === undefined ? undefined : { path, header, bytes }
  const checks = await streamTensors(all, writer, file)
  return { bytes: header.length + bytes, checks }
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

const MIB = 1024 * 1024
/** The bytes of a chunk. Filling a chunk blocks the event loop for about a millisecond. */
const CHUNK = 4 * MIB
/** The number of chunks that are written and checked at one time. */
const UNDER_WAY = 2
/** The largest number of tensors in a chunk, because each read of a device takes time. */
const PARTS = 16

/** Whether another thread writes tensors of this many bytes in total. */
export const isLarge = (bytes: number): boolean => bytes > MIB

/** Memory of chunks that no save currently uses. */
const spare: SharedArrayBuffer[] = []

/** Chooses the thread that checks and writes these tensors. */
export function writerFor(tensors: readonly Values[]): Writer {
  const bytes = tensors.reduce((sum, values) => sum + layoutOf(values).bytes, 0)
  return isLarge(bytes) ? inWriter : inThisThread
}

/** A part of a tensor, and its byte offset `place` in the memory of a chunk. */
interface CutPart {
  readonly tensor: number
  readonly from: number
  readonly to: number
  readonly place: number
}

/** Divides tensors into the parts of chunks. */
function cutTensors(tensors: readonly Values[]): CutPart[][] {
  const chunks: CutPart[][] = []
  let chunk: CutPart[] = []
  let place = CHUNK
  for (const [tensor, values] of tensors.entries()) {
    const each = bytesOf(layoutOf(values).dtype)
    for (let from = 0; from < values.length;) {
      if (place === CHUNK || chunk.length === PARTS) {
        chunk = []
        chunks.push(chunk)
        place = 0
      }
      const to = Math.min(values.length, from + (CHUNK - place) / each)
      chunk.push({ tensor, from, to, place })
      // Round up to a multiple of 8 bytes, the size of the largest values.
      place += Math.ceil(((to - from) * each) / 8) * 8
      from = to
    }
  }
  return chunks
}

/**
 * Reads tensors chunk by chunk into reused memory, has them checked and written, and releases them. Other
 * work of this process can run between chunks. If the other thread can read the memory of this process,
 * that thread copies the values that have a view.
 */
async function streamTensors(
  tensors: readonly Values[],
  writer: Writer,
  file: ChunkFile | undefined,
): Promise<Checks[]> {
  const { port1: port, port2 } = new MessageChannel()
  const written = writer('writeChunks', [port2, tensors.length, file], [port2])
  const ownMemory = writer === inThisThread ? undefined : openOwnMemory()
  const send = (message: ChunkMessage) => {
    port.postMessage(message)
  }
  const memories = Array.from(
    { length: UNDER_WAY },
    () => spare.pop() ?? new SharedArrayBuffer(CHUNK),
  )
  const free = memories.map((memory) => Promise.resolve(memory))
  /** One function for each chunk in progress, to call when the other thread has read the chunk. */
  const sent: (() => void)[] = []
  port.on('message', () => {
    sent.shift()!()
  })
  try {
    for (const cuts of cutTensors(tensors)) {
      const memory = (await Promise.race([free.shift()!, written])) as SharedArrayBuffer
      const inPlace: (readonly [view: () => Float32Array, address: number])[] = []
      const ended: HeldValues[] = []
      const parts: TensorChunk[] = []
      for (const { tensor, from, to, place } of cuts) {
        const values = tensors[tensor]!
        const chunk = toValues(layoutOf(values).dtype, memory, to - from, place)
        const isHeld = 'read' in values
        const view = ownMemory !== undefined && isHeld ? values.view : undefined
        let source: TensorChunk['source']
        if (view !== undefined) {
          const address = addressOf(view())
          inPlace.push([view, address])
          source = { file: ownMemory!, address: address + 4 * from }
        } else if (isHeld) await values.read(chunk as Float32Array, from)
        else chunk.set(values.subarray(from, to) as never)
        parts.push({ tensor, values: chunk, source })
        if (!isHeld || to < values.length) continue
        if (view === undefined) values.release()
        else ended.push(values)
      }
      const read = new Promise<void>((resolve) => sent.push(resolve)).then(() => {
        if (!inPlace.every(([view, address]) => addressOf(view()) === address)) {
          throw new Error('the memory of the tensors has moved during the save')
        }
        for (const values of ended) values.release()
        return memory
      })
      // Errors are thrown where `read` is awaited. After a failed save, nothing awaits it.
      read.catch(() => undefined)
      send(parts)
      free.push(read)
    }
    send(null)
    const checks = await written
    for (const settle of sent.splice(0)) settle()
    await Promise.all(free)
    if (spare.length === 0) spare.push(...memories)
    return checks
  } catch (error) {
    send('cancel')
    await written.catch(() => undefined)
    throw error
  } finally {
    port.close()
  }
}
