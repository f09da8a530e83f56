import { closeSync, fstatSync, readSync } from 'node:fs'
import { isObject, messageOf, openFile, record, shown, text, tsrError } from '@tsrun/core'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import {
  bytesOf,
  isCounts,
  isDType,
  isFloat,
  shorten,
  toFloat32,
  toValues,
  type SafetensorsDType,
  type TensorValues,
} from './dtypes.ts'

/** The entry of a tensor in the header of a safetensors file. */
export interface SafetensorsEntry {
  readonly dtype: SafetensorsDType
  readonly shape: readonly number[]
  /** Where the bytes of the tensor begin and end, relative to the end of the header. */
  readonly begin: number
  readonly end: number
}

export interface SafetensorsHeader {
  readonly entries: ReadonlyMap<string, SafetensorsEntry>
  readonly metadata: Readonly<Record<string, string>>
}

/** The largest header that the format allows, in bytes. */
const HEADER_LIMIT = 100_000_000
export const METADATA = '__metadata__'
const strings = record(text)

/**
 * Encodes the header of a safetensors file: its length as a little-endian uint64, then JSON, padded
 * with spaces to align the data. Source: github.com/huggingface/safetensors, section Format
 */
export function encodeHeader({ entries, metadata }: SafetensorsHeader): Uint8Array {
  const tensors = Array.from(
    entries,
    ([name, { dtype, shape, begin, end }]) =>
      [name, { dtype, shape, data_offsets: [begin, end] }] as const,
  )
  const hasMetadata = Object.keys(metadata).length > 0
  const json = Buffer.from(
    JSON.stringify(
      Object.fromEntries([...(hasMetadata ? [[METADATA, metadata]] : []), ...tensors]),
    ),
  )
  const length = Math.ceil(json.length / 8) * 8
  const header = Buffer.alloc(8 + length, ' ')
  header.writeBigUInt64LE(BigInt(length))
  header.set(json, 8)
  return header
}

/** Parses the JSON of a header. `dataBytes` is the length of the file without the header. */
export function parseHeader(json: Uint8Array, dataBytes: number): SafetensorsHeader {
  let content: unknown
  try {
    content = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(json))
  } catch {
    throw new Error('its header is not JSON')
  }
  if (json[0] !== 0x7b || !isObject(content)) throw new Error('its header is not a JSON object')
  const { [METADATA]: metadata = {}, ...tensors } = content
  if (!strings.is(metadata)) throw new Error('its metadata is not an object with strings')
  const entries = new Map(
    Object.entries(tensors).map(([name, entry]) => [name, checkEntry(shorten(name), entry)]),
  )
  checkOffsets(entries, dataBytes)
  return { entries, metadata }
}

function checkEntry(name: string, entry: unknown): SafetensorsEntry {
  if (!isObject(entry)) throw new Error(`${name} is not an object`)
  const { dtype, shape, data_offsets: offsets } = entry
  if (!isDType(dtype))
    throw new Error(
      `${name} has the unknown dtype ${shorten(typeof dtype === 'string' ? dtype : shown(dtype))}`,
    )
  if (!isCounts(shape)) throw new Error(`${name} has no shape`)
  if (!isCounts(offsets) || offsets.length !== 2) throw new Error(`${name} has no offsets`)
  const [begin, end] = offsets as [number, number]
  const bytes = sizeOf(shape) * bytesOf(dtype)
  if (end - begin !== bytes) {
    const found = `${end - begin} bytes`
    throw new Error(`${name} has ${found} instead of ${bytes} for ${dtype} [${shape.join(', ')}]`)
  }
  return { dtype, shape, begin, end }
}

function checkOffsets(entries: ReadonlyMap<string, SafetensorsEntry>, dataBytes: number) {
  let next = 0
  const ordered = [...entries].sort(([, a], [, b]) => a.begin - b.begin || a.end - b.end)
  for (const [name, { begin, end }] of ordered) {
    if (begin !== next) {
      const how = begin < next ? 'overlaps another tensor' : 'comes after a gap'
      throw new Error(`${shorten(name)} ${how}: it begins at ${begin} instead of ${next}`)
    }
    next = end
  }
  if (next === dataBytes) return
  throw new Error(
    `it has ${dataBytes} bytes of data, but its tensors have ${next}: ` +
      (dataBytes < next ? 'it is truncated' : 'something was appended'),
  )
}

/** A safetensors file whose header was read. Tensors are read on request. */
export interface SafetensorsFile extends SafetensorsHeader {
  readonly path: string
  /** @throws ERR_TSR_SAFETENSORS_TENSOR when the file has no tensor of this name */
  entry(name: string): SafetensorsEntry
  /** Reads the values of a tensor, in the dtype of the file. */
  read(name: string): TensorValues
  /** Reads the values of a tensor as float32. Its dtype must be F32, F16, BF16 or F64. */
  readFloats(name: string): Float32Array
}

/**
 * Reads the header of a safetensors file and checks it. No file stays open.
 *
 * @throws ERR_TSR_SAFETENSORS when it is no safetensors file, is truncated, or its tensors overlap;
 *   ENOENT, ...
 *
 * @example
 * const file = openSafetensors('model.safetensors')
 * for (const [name, { dtype, shape }] of file.entries) console.log(name, dtype, shape)
 * const weight = file.readFloats('weight')
 */
export function openSafetensors(path: string): SafetensorsFile {
  const { header, start } = withFile(path, (file) => readHeader(path, file))
  const entryOf = (tensor: string) => {
    const entry = header.entries.get(tensor)
    if (entry !== undefined) return entry
    const found = describeNames([...header.entries.keys()])
    throw tsrError('ERR_TSR_SAFETENSORS_TENSOR', { path, tensor, found })
  }
  const read = (name: string) => {
    const { dtype, begin, end } = entryOf(name)
    const bytes = withFile(path, (file) => readBytes(path, file, start + begin, start + end))
    return toValues(dtype, bytes)
  }
  return {
    ...header,
    path,
    entry: entryOf,
    read,
    readFloats: (name) => toFloat32(floatsIn({ path, entry: entryOf }, name), read(name)),
  }
}

/** Returns the dtype of a tensor, and throws if `readFloats` does not read it. */
export function floatsIn({ path, entry }: Pick<SafetensorsFile, 'path' | 'entry'>, name: string) {
  const { dtype } = entry(name)
  if (isFloat(dtype)) return dtype
  throw damaged(path, `${name} is ${dtype}, but floating-point numbers are expected`)
}

function withFile<T>(path: string, run: (file: number) => T): T {
  const file = openFile(path)
  try {
    return run(file)
  } finally {
    closeSync(file)
  }
}

function readHeader(path: string, file: number) {
  const { size } = fstatSync(file)
  if (size < 8) throw damaged(path, `it has ${size} bytes, too few for a header`)
  const length = new DataView(readBytes(path, file, 0, 8)).getBigUint64(0, true)
  if (length > BigInt(HEADER_LIMIT) || length > BigInt(size - 8)) {
    // Do not report the length: if the file is no safetensors file, these bytes mean something else.
    const facts = `a header that is longer than the file of ${size} bytes, or than 100 MB`
    throw damaged(path, `it declares ${facts}: it is not a safetensors file, or it is truncated`)
  }
  const start = 8 + Number(length)
  const json = new Uint8Array(readBytes(path, file, 8, start))
  try {
    return { header: parseHeader(json, size - start), start }
  } catch (error) {
    throw damaged(path, messageOf(error), error)
  }
}

/** The first names of a list and the number of the others, for error messages. */
export function describeNames(names: readonly string[]): string {
  const some = names.slice(0, 5).map(shorten).join(', ')
  return names.length > 5 ? `${some} and ${names.length - 5} more` : some || 'nothing'
}

function readBytes(path: string, file: number, begin: number, end: number): ArrayBuffer {
  // Allocate without zeroing, and outside of Node's shared buffer pool.
  const bytes = Buffer.allocUnsafeSlow(end - begin)
  for (let at = 0; at < bytes.length;) {
    // The operating system limits a single read to 2 GiB.
    const length = Math.min(bytes.length - at, 1 << 30)
    const bytesRead = readSync(file, bytes, at, length, begin + at)
    if (bytesRead === 0) throw damaged(path, 'the file ends before the end of the tensor')
    at += bytesRead
  }
  return bytes.buffer
}

function damaged(path: string, problem: string, cause?: unknown) {
  return tsrError('ERR_TSR_SAFETENSORS', { path, problem }, { cause })
}
