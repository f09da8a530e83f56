import * as msgpackr from 'msgpackr/pack'
import { argumentError, messageOf, tsrError } from './errors/tsr-error.ts'
import { addExtensions, formOf, toEncodable } from './msgpack-values.ts'

/** Largest control message in bytes. Tensors never go through the codec. */
export const MESSAGE_LIMIT = 16 * 1024 * 1024

/** Maximum number of arrays, objects, Maps and Sets in a message. Each takes about 100 bytes of memory. */
const MOST_CONTAINERS = 1 << 20

addExtensions(msgpackr)
/** Decodes Maps to plain objects. */
const packr = new msgpackr.Packr({
  useRecords: false,
  mapsAsObjects: true,
  variableMapSize: true,
  moreTypes: true,
  useToJSON: false,
})

/**
 * Encodes a control message. Functions become undefined, and class instances become plain objects.
 *
 * @throws ERR_TSR_MESSAGE_TOO_LARGE, or ERR_TSR_ARGUMENT for a value that cannot be encoded: a symbol, or
 *   an object that contains itself
 */
export function encode(value: unknown, limit = MESSAGE_LIMIT): Uint8Array {
  const bytes = pack(value)
  if (bytes.byteLength > limit) {
    throw tsrError('ERR_TSR_MESSAGE_TOO_LARGE', { bytes: bytes.byteLength, limit })
  }
  return bytes
}

/**
 * Decodes a control message. The caller checks the shape of the result.
 *
 * @param containers - limit on the number of arrays, objects, Maps and Sets
 * @throws ERR_TSR_MESSAGE_TOO_LARGE, ERR_TSR_MESSAGE_INVALID
 */
export function decode(
  bytes: Uint8Array,
  limit = MESSAGE_LIMIT,
  containers = MOST_CONTAINERS,
): unknown {
  if (bytes.byteLength > limit) {
    throw tsrError('ERR_TSR_MESSAGE_TOO_LARGE', { bytes: bytes.byteLength, limit })
  }
  try {
    scanMessage(bytes, containers)
    return packr.unpack(bytes) as unknown
  } catch (cause) {
    const reason = messageOf(cause)
    throw tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: bytes.byteLength, reason }, { cause })
  }
}

function pack(value: unknown) {
  try {
    return packr.pack(toEncodable(value, MOST_CONTAINERS))
  } catch (cause) {
    throw argumentError(
      'The message',
      `not encodable (${messageOf(cause)})`,
      'plain data, typed arrays, Maps, Sets or Errors',
      { cause },
    )
  }
}

/*
 * Scans the tokens of a MessagePack message before it is decoded. An empty container takes one byte in
 * the message but about a hundred in memory, so the number of containers is limited as well. The scan
 * also rejects input that msgpackr accepts but our encoder never writes: records, whose keys msgpackr
 * compiles, and keys that are not strings.
 */

/** Payload sizes in bytes, by the first byte of MessagePack values with a payload of fixed size. */
const FIXED: Readonly<Partial<Record<number, number>>> = {
  ...{ 0xc0: 0, 0xc2: 0, 0xc3: 0 },
  ...{ 0xca: 4, 0xcb: 8, 0xcc: 1, 0xcd: 2, 0xce: 4, 0xcf: 8, 0xd0: 1, 0xd1: 2, 0xd2: 4, 0xd3: 8 },
}
/** Sizes in bytes of the length field, by the first byte of MessagePack strings and binary values. */
const SIZED: Readonly<Partial<Record<number, 1 | 2 | 4>>> = {
  ...{ 0xc4: 1, 0xc5: 2, 0xc6: 4, 0xd9: 1, 0xda: 2, 0xdb: 4 },
}

const PROTO = new TextEncoder().encode('__proto__')

/** A container, some of whose values have not been read yet. */
interface Open {
  missing: number
  /** Whether the container is a map, in which keys and values alternate. */
  readonly isMap: boolean
}

/** Throws an Error unless a message is exactly one value, in the form that our encoder writes. */
function scanMessage(bytes: Uint8Array, most: number) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const stack: Open[] = [{ missing: 1, isMap: false }]
  let containers = 0
  let at = 0

  const readKey = () => {
    const token = take(1)
    const size = token >= 0xd9 ? SIZED[token] : undefined
    if (size === undefined && (token < 0xa0 || token >= 0xc0))
      throw new Error('a key is not a text')
    const length = size === undefined ? token & 31 : take(size)
    const start = at
    skip(length)
    if (length === PROTO.length && PROTO.every((byte, i) => byte === bytes[start + i])) {
      throw new Error('it has the key __proto__')
    }
  }

  const readValue = () => {
    const token = take(1)
    if (token < 0x80 || token >= 0xe0) return
    if (token < 0x90) enter(token & 15, true)
    else if (token < 0xa0) enter(token & 15, false)
    else if (token < 0xc0) skip(token & 31)
    else if (token >= 0xd4 && token <= 0xd8) readExtension(1 << (token - 0xd4))
    else if (token >= 0xc7 && token <= 0xc9) readExtension(take(1 << (token - 0xc7)))
    else if (token === 0xdc || token === 0xdd) enter(take(token === 0xdc ? 2 : 4), false)
    else if (token === 0xde || token === 0xdf) enter(take(token === 0xde ? 2 : 4), true)
    else if (FIXED[token] !== undefined) skip(FIXED[token])
    else if (SIZED[token] !== undefined) skip(take(SIZED[token]))
    else throw new Error('it has a byte that MessagePack does not use')
  }

  /** @param length - number of elements of an array, or of entries of a map */
  const enter = (length: number, isMap: boolean) => {
    count()
    stack.push({ missing: isMap ? 2 * length : length, isMap })
  }

  const readExtension = (length: number) => {
    count()
    const type = bytes[at]
    const form = type === undefined ? undefined : formOf(type)
    if (form === undefined) {
      throw new Error(`it has an extension of the unknown type ${String(type)}`)
    }
    skip(1 + length)
    if (form !== 'tag') return
    const next = bytes[at] ?? 0
    const isList = (next >= 0x90 && next < 0xa0) || next === 0xdc || next === 0xdd
    if (length !== 1 || !isList) throw new Error('it has a tag without a list')
    readValue()
  }

  const count = () => {
    if (++containers <= most) return
    throw new Error(`it has more than ${most} containers`)
  }

  const take = (size: number): number => {
    const start = at
    skip(size)
    if (size === 1) return view.getUint8(start)
    return size === 2 ? view.getUint16(start) : view.getUint32(start)
  }

  const skip = (length: number) => {
    at += length
    if (at > bytes.length) throw new Error('it ends in the middle of a value')
  }

  for (let open = stack.at(-1); open !== undefined; open = stack.at(-1)) {
    if (open.missing === 0) stack.pop()
    else if (open.isMap && open.missing-- % 2 === 0) readKey()
    else {
      if (!open.isMap) open.missing--
      readValue()
    }
  }
  if (at < bytes.length) throw new Error('it is followed by more')
}
