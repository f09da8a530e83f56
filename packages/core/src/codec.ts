import { Packr } from 'msgpackr'
import { tsrError } from './errors/tsr-error.ts'
import { keepForeignArrays } from './foreign-arrays.ts'

/** Largest control message in bytes; bulk data never goes through the codec. */
export const MESSAGE_LIMIT = 16 * 1024 * 1024

/**
 * MessagePack with extensions for typed arrays, Maps, Sets, bigints, dates, Errors and cycles.
 * Objects are records, because as MessagePack maps they could not be told from Maps.
 */
const packr = new Packr({ structuredClone: true })
keepForeignArrays()

/**
 * Encodes a control message. Functions become undefined, instances of classes plain objects.
 *
 * @throws ERR_TSR_MESSAGE_TOO_LARGE, ERR_TSR_ARGUMENT for what cannot be encoded (a symbol)
 */
export function encode(value: unknown, limit = MESSAGE_LIMIT): Uint8Array {
  const bytes = pack(value)
  if (bytes.byteLength > limit) {
    throw tsrError('ERR_TSR_MESSAGE_TOO_LARGE', { bytes: bytes.byteLength, limit })
  }
  return bytes
}

/**
 * Decodes a control message; the caller checks its shape.
 *
 * @throws ERR_TSR_MESSAGE_TOO_LARGE, ERR_TSR_MESSAGE_INVALID
 */
export function decode(bytes: Uint8Array, limit = MESSAGE_LIMIT): unknown {
  if (bytes.byteLength > limit) {
    throw tsrError('ERR_TSR_MESSAGE_TOO_LARGE', { bytes: bytes.byteLength, limit })
  }
  try {
    return packr.unpack(bytes)
  } catch (cause) {
    const reason = reasonOf(cause)
    throw tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: bytes.byteLength, reason }, { cause })
  }
}

function pack(value: unknown): Uint8Array {
  try {
    return packr.pack(value)
  } catch (cause) {
    const facts = {
      name: 'The message',
      value: `not encodable (${reasonOf(cause)})`,
      expected: 'plain data, typed arrays, Maps, Sets or Errors',
    }
    throw tsrError('ERR_TSR_ARGUMENT', facts, { cause })
  }
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
