import {
  choice,
  decode,
  either,
  encode,
  errorFacts,
  errorTable,
  flag,
  host,
  integer,
  isObject,
  list,
  number,
  object,
  text,
  tsrError,
  where,
  type ObjectOf,
  type Of,
  type Schema,
  type TsrErrorCode,
} from '@tsrun/core'

/* The messages between clients and the store, and their limits. */

/** Longest key or queue name, in bytes of UTF-8. */
const KEY_LIMIT = 8 * 1024
/** Longest value in bytes. */
export const VALUE_LIMIT = 8 * 1024 * 1024
/** Maximum bytes of all keys, values and queues of a store, including overhead. */
export const STORE_LIMIT = 256 * 1024 * 1024
/** Longest frame in bytes. A frame holds one request or answer. */
export const FRAME_LIMIT = 16 * 1024 * 1024

/** Size in bytes from which a value is shared between answers instead of copied. */
const SHARED = 64 * 1024
/** MessagePack's token for binary data with a 32-bit length. */
const BYTES_32 = 0xc6
/** Length of an encoded empty binary value, in bytes. */
const EMPTY_BYTES = 2

/** Maximum arrays, maps and extensions in a request. The request, its keys and two values make four. */
const REQUEST_CONTAINERS = 16

export function checkLimit(what: string, bytes: number, limit: number): void {
  if (bytes > limit) throw tsrError('ERR_TSR_STORE_LIMIT', { what, bytes, limit })
}

export function totalBytes(parts: readonly Uint8Array[]): number {
  return parts.reduce((sum, { byteLength }) => sum + byteLength, 0)
}

const bytes = where<Uint8Array>(host.types.isUint8Array, 'bytes')

const key = { key: text }
const keys = { keys: list(text) }

const requests = {
  set: {
    key: text,
    value: bytes,
    timeToLive: number.refine((duration) => duration >= 0).optional(),
    whileConnected: choice(true).optional(),
  },
  get: key,
  multiGet: keys,
  wait: keys,
  check: keys,
  add: { key: text, amount: integer },
  compareSet: { key: text, expected: bytes.optional(), desired: bytes },
  append: { key: text, value: bytes },
  delete: key,
  list: key,
  queuePush: { key: text, value: bytes },
  queuePop: key,
  queueLength: key,
  /** Watches a key. Events carry the id of this request. */
  watch: key,
  unwatch: { watch: integer },
}

export type Operation = keyof typeof requests

type VariantOf<Op extends Operation> = { readonly op: Op } & ObjectOf<(typeof requests)[Op]>

export type Request = { [Op in Operation]: VariantOf<Op> }[Operation]

const results = {
  set: choice(null),
  get: bytes,
  multiGet: list(bytes),
  wait: choice(null),
  check: flag,
  add: integer,
  compareSet: object({ success: flag, value: bytes.optional() }),
  append: integer,
  delete: flag,
  list: list(text),
  queuePush: integer,
  queuePop: bytes,
  queueLength: integer,
  watch: choice(null),
  unwatch: choice(null),
}

export type Results = { [Op in Operation]: Of<(typeof results)[Op]> }

/**
 * A message from a client to the server: a request, the cancellation of an earlier wait, or the
 * receipt for a value of a queue. A value without a receipt returns to the queue.
 */
export type ClientMessage = { readonly id: number } & (
  Request | { readonly op: 'cancel' } | { readonly op: 'received' }
)

const clientMessages = new Map<unknown, Schema<object>>(
  Object.entries({ ...requests, cancel: {}, received: {} }).map(([op, fields]) => [
    op,
    object({ id: integer, op: text, ...fields }, 'refuse'),
  ]),
)

/** A change of the key that request `id` watches. Without a value, the key was deleted or has expired. */
const change = object({ changed: choice(true), value: bytes.optional() }, 'refuse')

/** The only answer to request `id`. */
const answer = either(
  object({ result: where<Results[Operation]>((result) => result !== undefined, '') }, 'refuse'),
  object({ code: where<TsrErrorCode>(isErrorCode, ''), facts: errorFacts }, 'refuse'),
  /** The answer to a cancelled wait: the keys that were missing. */
  object({ missing: list(text) }, 'refuse'),
)

function isErrorCode(code: unknown) {
  return typeof code === 'string' && Object.hasOwn(errorTable, code)
}

export type Change = Of<typeof change>
export type Answer = Of<typeof answer>

/** A message from the server to a client. */
export type ServerMessage = { readonly id: number } & (Answer | Change)

/**
 * Checks the lengths of a request. The client calls it before sending, and the server calls it again.
 *
 * @throws ERR_TSR_STORE_LIMIT
 */
export function checkRequest(request: Request): void {
  if ('key' in request) checkKey(request.key)
  if ('keys' in request) request.keys.forEach(checkKey)
  if ('value' in request) checkValue(request.value)
  if ('expected' in request) checkValue(request.expected)
  if ('desired' in request) checkValue(request.desired)
}

function checkKey(key: string) {
  // UTF-8 takes at most three bytes for each UTF-16 unit, so most keys need no exact count.
  if (key.length * 3 > KEY_LIMIT) checkLimit('The key', host.bytesOf(key).byteLength, KEY_LIMIT)
}

function checkValue(value?: Uint8Array) {
  checkLimit('The value', value?.byteLength ?? 0, VALUE_LIMIT)
}

export function isResultOf<Op extends Operation>(op: Op, value: unknown): value is Results[Op] {
  return results[op].is(value)
}

/** @throws ERR_TSR_STORE_LIMIT if the message exceeds a frame */
export function encodeRequest(message: ClientMessage): Uint8Array {
  const bytes = encode(message, Infinity)
  checkLimit('The request', bytes.byteLength, FRAME_LIMIT)
  return bytes
}

/**
 * Encodes an answer as the parts of a frame. Large values are separate parts without a copy, so that
 * answers to many clients share them. MessagePack puts them at the end of the message.
 *
 * @throws ERR_TSR_STORE_LIMIT if the message exceeds a frame
 */
export function encodeAnswer(message: ServerMessage): Uint8Array[] {
  const values: Uint8Array[] = []
  const withoutValues = (part: unknown): unknown => {
    if (host.types.isUint8Array(part)) {
      values.push(part)
      return new Uint8Array(0)
    }
    if (Array.isArray(part)) return part.map(withoutValues)
    if (!isObject(part)) return part
    return Object.fromEntries(
      Object.entries(part).map(([key, field]) => [key, withoutValues(field)]),
    )
  }
  const bare = withoutValues(message)
  const parts =
    totalBytes(values) >= SHARED ? sharedParts(bare, values) : [encode(message, Infinity)]
  checkLimit('The answer', totalBytes(parts), FRAME_LIMIT)
  return parts
}

/**
 * Returns the parts of a frame whose message ends with `values`.
 * @param bare - the message with an empty value at the end in place of each of `values`
 */
function sharedParts(bare: unknown, values: readonly Uint8Array[]) {
  const empty = encode(new Uint8Array(0))
  const start = empty.subarray(0, empty.length - EMPTY_BYTES)
  const whole = encode(bare, Infinity)
  const parts = values.flatMap((value) => {
    const length = new Uint8Array(5).fill(BYTES_32)
    new DataView(length.buffer).setUint32(1, value.byteLength)
    return [start, length, value]
  })
  return [whole.subarray(0, whole.length - values.length * empty.length), ...parts]
}

/** @throws ERR_TSR_MESSAGE_INVALID; the server then drops the connection */
export function decodeClientMessage(bytes: Uint8Array): ClientMessage {
  const message = decodeObject(bytes, REQUEST_CONTAINERS)
  if (clientMessages.get(message['op'])?.is(message) !== true) {
    throw invalid(bytes, 'it is not a request of the store')
  }
  return message as unknown as ClientMessage
}

/** @throws ERR_TSR_MESSAGE_INVALID */
export function decodeServerMessage(bytes: Uint8Array): ServerMessage {
  const whole = decodeObject(bytes)
  const { id, ...message } = whole
  if (integer.is(id) && (answer.is(message) || change.is(message))) return whole as never
  throw invalid(bytes, 'it is not an answer of the store')
}

function decodeObject(bytes: Uint8Array, containers?: number): Readonly<Record<string, unknown>> {
  const message = decode(bytes, FRAME_LIMIT, containers)
  if (!isObject(message)) throw invalid(bytes, 'it is not an object')
  return message
}

function invalid(bytes: Uint8Array, reason: string) {
  return tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: bytes.byteLength, reason })
}
