import { createRequire } from 'node:module'
import type * as Msgpackr from 'msgpackr'
import * as msgpackr from 'msgpackr/pack'
import { tsrError } from './errors/tsr-error.ts'
import { keepForeignArrays } from './foreign-arrays.ts'

/** Largest control message in bytes; bulk data never goes through the codec. */
export const MESSAGE_LIMIT = 16 * 1024 * 1024

/**
 * MessagePack with extensions for typed arrays, Maps, Sets, bigints, dates, Errors and cycles.
 * Objects are records, because as MessagePack maps they could not be told from Maps.
 */
function makePackr({ Packr, addExtension }: Pick<typeof Msgpackr, 'Packr' | 'addExtension'>) {
  keepForeignArrays(addExtension)
  return new Packr({ structuredClone: true })
}

const packr = makePackr(msgpackr)
let nativePackr: Msgpackr.Packr | undefined

/** Bytes from which on the native extraction of strings is worth loading. */
const LARGE_MESSAGE = 4096

/**
 * The main entry of the package extracts strings with a native module, up to nine times as fast;
 * most processes decode small messages only and never load it.
 */
function packrFor(bytes: Uint8Array): Msgpackr.Packr {
  if (bytes.byteLength < LARGE_MESSAGE) return packr
  const require = createRequire(import.meta.url)
  return (nativePackr ??= makePackr(require('msgpackr') as typeof Msgpackr))
}

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
    return packrFor(bytes).unpack(bytes)
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
