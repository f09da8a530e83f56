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
 * Like `writeSafetensors`, also for held values.
 *
 * @param others - tensors that are only checked
 * @returns the size of the file, and the checks of all tensors
 */
export async function writeTensors(
  path: string,
  tensors: ReadonlyMap<string, AnyTensorData>,
  others: readonly Values[],
  metadata: Readonly<Record<string, string>>,
  writer: Writer,
) {
  const { entries, bytes } = layOut(tensors)
  const header = encodeHeader({ entries, metadata })
  const all = [...Array.from(tensors.values(), ({ values }) => values), ...others]
  const file = { path, header, bytes }
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
/** The bytes of a chunk. All that are free are filled at once, in about a millisecond. */
const CHUNK = 4 * MIB
/** The number of chunks that are written and checked at one time. */
const UNDER_WAY = 2
/** The largest number of tensors in a chunk, because each read of a device takes time. */
const PARTS = 16

/** Whether a thread writes tensors of this size together. */
export const isLarge = (bytes: number): boolean => bytes > MIB

/** Memory for chunks that no save uses. */
const spare: SharedArrayBuffer[] = []

/** Chooses the thread that checks and writes these tensors. */
export function writerFor(tensors: readonly Values[]): Writer {
  const bytes = tensors.reduce((sum, values) => sum + layoutOf(values).bytes, 0)
  return isLarge(bytes) ? inWriter : inThisThread
}

/** What the other thread has, besides the parts. */
interface SentChunk {
  readonly memory: SharedArrayBuffer
  /** The values that the thread reads itself, and their addresses. */
  readonly inPlace: readonly (readonly [view: () => Float32Array, address: number])[]
  /** Values of which the thread reads the last part. */
  readonly ended: readonly HeldValues[]
  readonly settle: (memory: SharedArrayBuffer) => void
}

/** @throws Error if the values have moved while they were read */
function checkPlaces(inPlace: SentChunk['inPlace']) {
  if (inPlace.every(([view, address]) => addressOf(view()) === address)) return
  throw new Error('the memory of the tensors has moved during the save')
}

/**
 * Reads tensors chunk by chunk into memory that is used again, has them checked and written, and
 * releases them. Other work of this process can run between chunks. If the other thread can read the
 * memory of this process, it copies the values that have a view.
 *
 * @param file - receives the first tensors; the others are only checked
 * @returns the checks of each tensor
 * @throws Error if the memory of the tensors moves meanwhile
 */
export async function streamTensors(
  tensors: readonly Values[],
  writer: Writer,
  file?: ChunkFile,
): Promise<Checks[]> {
  const { port1: port, port2 } = new MessageChannel()
  const written = writer('writeChunks', [port2, tensors.length, file], [port2])
  const ownMemory = writer === inThisThread ? undefined : openOwnMemory()
  const sent: SentChunk[] = []
  let failed: { readonly error: unknown } | undefined
  const settle = () => {
    const { memory, inPlace, ended, settle } = sent.shift()!
    try {
      checkPlaces(inPlace)
      for (const values of ended) values.release()
    } catch (error) {
      failed = { error }
    }
    settle(memory)
  }
  port.on('message', settle)
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
  let inPlace: SentChunk['inPlace'][number][] = []
  let ended: HeldValues[] = []
  const flush = () => {
    if (memory === undefined) return
    const kept = { memory, inPlace, ended }
    send(parts)
    free.push(new Promise((settle) => sent.push({ ...kept, settle })))
    memory = undefined
    used = 0
    parts = []
    inPlace = []
    ended = []
  }
  try {
    for (const [tensor, values] of tensors.entries()) {
      const { dtype } = layoutOf(values)
      for (let at = 0; at < values.length;) {
        memory ??= (await Promise.race([free.shift()!, written])) as SharedArrayBuffer
        if (failed !== undefined) throw failed.error
        const length = Math.min(values.length - at, (CHUNK - used) / bytesOf(dtype))
        const chunk = toValues(dtype, memory, length, used)
        const view = ownMemory !== undefined && 'read' in values ? values.view : undefined
        let source: TensorChunk['source']
        if (view !== undefined) {
          const address = addressOf(view())
          inPlace.push([view, address])
          source = { file: ownMemory!, address: address + 4 * at }
        } else if ('read' in values) await values.read(chunk as Float32Array, at)
        else chunk.set(values.subarray(at, at + length) as never)
        parts.push({ tensor, values: chunk, source })
        at += length
        if ('read' in values && at === values.length) {
          if (view === undefined) values.release()
          else ended.push(values)
        }
        // A multiple of the size of any value.
        used = Math.ceil((used + chunk.byteLength) / 8) * 8
        if (used === CHUNK || parts.length === PARTS) flush()
      }
    }
    flush()
    send(null)
    const checks = await written
    while (sent.length > 0) settle()
    if (failed !== undefined) throw failed.error
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
