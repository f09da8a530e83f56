import { argumentError } from '@tsrun/core'
import type { HeldValues } from '../backend/held-values.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import {
  bytesOf,
  layoutOf,
  type SafetensorsDType,
  type TensorValues,
} from './safetensors/dtypes.ts'
import { encodeHeader, METADATA, type SafetensorsEntry } from './safetensors/header.ts'
import type { Writer } from './writer.ts'
import { streamTensors, writerFor } from './stream.ts'

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
  const values = Array.from(tensors.values(), (tensor) => tensor.values)
  const writer = writerFor(values)
  const { bytes, checks } = await writeTensors(path, tensors, [], metadata, writer, signal)
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
  writer: Writer,
  signal: AbortSignal | undefined,
) {
  const { entries, bytes } = layOut(tensors)
  const header = encodeHeader({ entries, metadata })
  const all = [...Array.from(tensors.values(), ({ values }) => values), ...others]
  const file = { path, header, bytes }
  const checks = await streamTensors(all, writer, file, signal)
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
