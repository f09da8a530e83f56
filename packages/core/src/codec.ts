import * as msgpackr from 'msgpackr/pack'
import { argumentError, messageOf, tsrError } from './errors/tsr-error.ts'
import { scanMessage } from './msgpack-scan.ts'
import { addExtensions, resolveReferences, toEncodable } from './msgpack-values.ts'

/** Largest control message in bytes. Tensors never go through the codec. */
export const MESSAGE_LIMIT = 16 * 1024 * 1024

/**
 * Maximum number of arrays, objects, Maps and Sets in a message. Each takes about a hundred bytes
 * of memory.
 */
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
 * @throws ERR_TSR_MESSAGE_TOO_LARGE, or ERR_TSR_ARGUMENT for a value that cannot be encoded (a symbol)
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
 * @param containers - most arrays, objects, Maps and Sets
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
    const hasReferences = scanMessage(bytes, containers)
    const value: unknown = packr.unpack(bytes)
    return hasReferences ? resolveReferences(value) : value
  } catch (cause) {
    const reason = messageOf(cause)
    throw tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: bytes.byteLength, reason }, { cause })
  }
}

function pack(value: unknown): Uint8Array {
  try {
    return packr.pack(toEncodable(value))
  } catch (cause) {
    throw argumentError(
      'The message',
      `not encodable (${messageOf(cause)})`,
      'plain data, typed arrays, Maps, Sets or Errors',
      { cause },
    )
  }
}
