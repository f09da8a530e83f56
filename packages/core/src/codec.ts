import { createRequire } from 'node:module'
import { types } from 'node:util'
import type * as Msgpackr from 'msgpackr'
import * as msgpackr from 'msgpackr/pack'
import { tsrError } from './errors/tsr-error.ts'
import { scanMessage } from './msgpack-scan.ts'

/** Largest control message in bytes. Tensors never go through the codec. */
export const MESSAGE_LIMIT = 16 * 1024 * 1024

/** Arrays, objects, Maps and Sets of a message, at most: each takes some hundred bytes of memory. */
const MOST_CONTAINERS = 1 << 20

/** MessagePack extension type of typed arrays of another realm. */
const FOREIGN_ARRAY = 0x54

const constructors = {
  Int8Array,
  Uint8Array,
  Uint8ClampedArray,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  Float32Array,
  Float64Array,
  BigInt64Array,
  BigUint64Array,
} as const

const TypedArray = Object.getPrototypeOf(Uint8Array) as { readonly prototype: object }

/**
 * Matches typed arrays of another realm (a `vm` context, a test runner). msgpackr recognizes typed
 * arrays with `instanceof`, so it would encode these as plain objects. They are decoded as typed arrays
 * of the reader's realm.
 */
const ForeignTypedArray = Object.defineProperty(() => undefined, Symbol.hasInstance, {
  value: (value: unknown) =>
    types.isTypedArray(value) && !Object.prototype.isPrototypeOf.call(TypedArray.prototype, value),
})

/**
 * MessagePack with extensions for typed arrays, Maps, Sets, bigints, dates, Errors and cycles.
 * Plain objects are encoded as msgpackr's records, because a MessagePack map decodes as a Map.
 */
function makePackr({ Packr, addExtension }: Pick<typeof Msgpackr, 'Packr' | 'addExtension'>) {
  addExtension({
    Class: ForeignTypedArray,
    type: FOREIGN_ARRAY,
    write: (array: NodeJS.TypedArray) => [
      array[Symbol.toStringTag],
      Buffer.from(array.buffer, array.byteOffset, array.byteLength),
    ],
    read: ([name, bytes]: [keyof typeof constructors, Uint8Array]) =>
      new constructors[name](new Uint8Array(bytes).buffer),
  })
  return new Packr({ structuredClone: true })
}

const packr = makePackr(msgpackr)
let nativePackr: Msgpackr.Packr | undefined

/** From this many bytes on, the native extraction of strings is worth loading. */
const LARGE_MESSAGE = 4096

/**
 * The main entry of msgpackr extracts strings with a native module, up to nine times as fast. It is
 * loaded for the first large message, because most processes decode only small ones.
 */
function packrFor(bytes: Uint8Array): Msgpackr.Packr {
  if (bytes.byteLength < LARGE_MESSAGE) return packr
  const require = createRequire(import.meta.url)
  return (nativePackr ??= makePackr(require('msgpackr') as typeof Msgpackr))
}

/**
 * Encodes a control message. A function becomes undefined, an instance of a class a plain object.
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
 * Decodes a control message. Checking the shape of the result is up to the caller.
 *
 * @param containers - arrays, objects, Maps and Sets, at most
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
