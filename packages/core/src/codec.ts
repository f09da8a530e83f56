import { Packr } from 'msgpackr'
import { tsrError } from './errors/tsr-error.ts'

/** Largest control message in bytes; bulk data never goes through the codec. */
export const MESSAGE_LIMIT = 16 * 1024 * 1024

/** Portable MessagePack that keeps typed arrays, Maps, bigints and Errors, and runs no code. */
const packr = new Packr({ useRecords: false, structuredClone: true })

/**
 * Encodes a control message.
 *
 * @throws ERR_TSR_MESSAGE_TOO_LARGE
 */
export function encode(value: unknown, limit = MESSAGE_LIMIT): Uint8Array {
  const bytes = packr.pack(value)
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
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: bytes.byteLength, reason }, { cause })
  }
}
