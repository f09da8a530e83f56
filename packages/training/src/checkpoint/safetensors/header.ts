import { isObject, record, shown, text } from '@tsrun/core'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { bytesOf, isCounts, isDType, shorten, type SafetensorsDType } from './dtypes.ts'

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
export const HEADER_LIMIT = 100_000_000
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

/**
 * Parses the JSON of a header.
 *
 * @param dataBytes - the length of the file without the header
 * @throws Error that describes the problem
 */
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

function checkOffsets(entries: ReadonlyMap<string, SafetensorsEntry>, dataBytes: number): void {
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
