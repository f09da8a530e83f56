import {
  decode,
  encode,
  errorTable,
  host,
  isFacts,
  isFlag,
  isInteger,
  isNumber,
  isObject,
  isText,
  listOf,
  objectOf,
  oneOf,
  optional,
  tsrError,
  type Shape,
  type TsrError,
  type TsrErrorCode,
} from '@tsrun/core'

/*
 * What clients and the store say to each other, and how long it may be.
 */

/** Longest key or queue name, in bytes of UTF-8. */
export const KEY_LIMIT = 8 * 1024
/** Longest value in bytes. */
export const VALUE_LIMIT = 8 * 1024 * 1024
/** Bytes of all keys, values and queues of a store, with what they cost besides. */
export const STORE_LIMIT = 256 * 1024 * 1024
/** Longest frame in bytes: a whole request or answer. */
export const FRAME_LIMIT = 16 * 1024 * 1024

/** Answers with values of that many bytes share them. */
const SHARED = 64 * 1024
/** MessagePack's token of bytes whose length has 32 bits. */
const BYTES_32 = 0xc6
/** Bytes that it takes for no bytes. */
const EMPTY_BYTES = 2

/** Containers of a request: its own, its keys, and two values. */
const REQUEST_CONTAINERS = 16

export function checkLimit(what: string, bytes: number, limit: number): void {
  if (bytes > limit) throw tsrError('ERR_TSR_STORE_LIMIT', { what, bytes, limit })
}

/** What a client asks of the store: one variant for each operation. */
export type Request =
  | {
      readonly op: 'set'
      readonly key: string
      readonly value: Uint8Array
      readonly timeToLive?: number
      readonly whileConnected?: true
    }
  | { readonly op: 'get'; readonly key: string }
  | { readonly op: 'multiGet'; readonly keys: readonly string[] }
  | { readonly op: 'wait'; readonly keys: readonly string[] }
  | { readonly op: 'check'; readonly keys: readonly string[] }
  | { readonly op: 'add'; readonly key: string; readonly amount: number }
  | {
      readonly op: 'compareSet'
      readonly key: string
      readonly expected?: Uint8Array
      readonly desired: Uint8Array
    }
  | { readonly op: 'append'; readonly key: string; readonly value: Uint8Array }
  | { readonly op: 'delete'; readonly key: string }
  | { readonly op: 'list'; readonly key: string }
  | { readonly op: 'queuePush'; readonly key: string; readonly value: Uint8Array }
  | { readonly op: 'queuePop'; readonly key: string }
  | { readonly op: 'queueLength'; readonly key: string }
  /** Events carry the id of this request. */
  | { readonly op: 'watch'; readonly key: string }
  | { readonly op: 'unwatch'; readonly watch: number }

export type Operation = Request['op']

/** The result of each operation. */
export interface Results {
  set: null
  get: Uint8Array
  multiGet: Uint8Array[]
  wait: null
  check: boolean
  add: number
  compareSet: { success: boolean; value: Uint8Array | undefined }
  append: number
  delete: boolean
  list: string[]
  queuePush: number
  queuePop: Uint8Array
  queueLength: number
  watch: null
  unwatch: null
}

/**
 * Client to server: a request, the cancellation of the wait of an earlier one, or the receipt for the
 * value of a queue, which goes back to the queue without it.
 */
export type ClientMessage = { readonly id: number } & (
  Request | { readonly op: 'cancel' } | { readonly op: 'received' }
)

/** The one answer to the request `id`. */
export type Answer =
  | { readonly result: Results[Operation] }
  | { readonly code: TsrErrorCode; readonly facts: TsrError['facts'] }
  /** The wait was cancelled while these keys were missing. */
  | { readonly missing: readonly string[] }

/** A change of the key that the request `id` watches. Without a value it was deleted or expired. */
export interface Change {
  readonly changed: true
  readonly value?: Uint8Array
}

/** Server to client. */
export type ServerMessage = { readonly id: number } & (Answer | Change)

/**
 * Checks the lengths in a request, first in the client before it is sent, then again in the server.
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

function checkKey(key: string): void {
  // UTF-8 takes one to three bytes for each UTF-16 unit, so most keys need no count
  if (key.length * 3 > KEY_LIMIT) checkLimit('The key', host.bytesOf(key).byteLength, KEY_LIMIT)
}

function checkValue(value: Uint8Array): void {
  checkLimit('The value', value.byteLength, VALUE_LIMIT)
}

type Check = (value: unknown) => boolean

const isTexts = listOf(isText)
const isBytes: Shape<Uint8Array> = host.types.isUint8Array
const isDuration = (value: unknown): value is number => isNumber(value) && value >= 0

/** The fields of each message from a client. Any other field is an error. */
const shapes: Readonly<Record<ClientMessage['op'], Readonly<Record<string, Check>>>> = {
  set: {
    key: isText,
    value: isBytes,
    timeToLive: optional(isDuration),
    whileConnected: optional(oneOf(true)),
  },
  get: { key: isText },
  multiGet: { keys: isTexts },
  wait: { keys: isTexts },
  check: { keys: isTexts },
  add: { key: isText, amount: isInteger },
  compareSet: { key: isText, expected: optional(isBytes), desired: isBytes },
  append: { key: isText, value: isBytes },
  delete: { key: isText },
  list: { key: isText },
  queuePush: { key: isText, value: isBytes },
  queuePop: { key: isText },
  queueLength: { key: isText },
  watch: { key: isText },
  unwatch: { watch: isInteger },
  cancel: {},
  received: {},
}

const isNull = oneOf(null)

/** What the result of each operation is. */
const results: Readonly<Record<Operation, Check>> = {
  set: isNull,
  get: isBytes,
  multiGet: listOf(isBytes),
  wait: isNull,
  check: isFlag,
  add: isInteger,
  compareSet: objectOf<Results['compareSet']>({ success: isFlag, value: optional(isBytes) }),
  append: isInteger,
  delete: isFlag,
  list: isTexts,
  queuePush: isInteger,
  queuePop: isBytes,
  queueLength: isInteger,
  watch: isNull,
  unwatch: isNull,
}

/** Whether this can be the result of an operation. */
export function isResultOf<Op extends Operation>(op: Op, value: unknown): value is Results[Op] {
  return results[op](value)
}

const isAnswer: Check = (message) => {
  if (!isObject(message)) return false
  if ('changed' in message) return optional(isBytes)(message['value'])
  if ('code' in message) {
    const { code, facts } = message
    return isText(code) && Object.hasOwn(errorTable, code) && isFacts(facts)
  }
  return 'missing' in message ? isTexts(message['missing']) : 'result' in message
}

/** @throws ERR_TSR_STORE_LIMIT when the message does not fit into a frame */
export function encodeRequest(message: ClientMessage): Uint8Array {
  const bytes = encode(message, Infinity)
  checkLimit('The request', bytes.byteLength, FRAME_LIMIT)
  return bytes
}

/**
 * The parts of a frame. Large values are parts of their own and no copies, so that the answers to many
 * clients share them: MessagePack has them at the end of a message.
 *
 * @throws ERR_TSR_STORE_LIMIT when the message does not fit into a frame
 */
export function encodeAnswer(message: ServerMessage): Uint8Array[] {
  const values: Uint8Array[] = []
  const withoutValues = (part: unknown): unknown => {
    if (isBytes(part)) {
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
  const large = values.reduce((sum, { byteLength }) => sum + byteLength, 0) >= SHARED
  const parts = large ? sharedParts(bare, values) : [encode(message, Infinity)]
  const bytes = parts.reduce((sum, { byteLength }) => sum + byteLength, 0)
  checkLimit('The answer', bytes, FRAME_LIMIT)
  return parts
}
/** @param bare - a message with empty arrays in the place of its values */
function sharedParts(bare: unknown, values: readonly Uint8Array[]): Uint8Array[] {
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

/** @throws ERR_TSR_MESSAGE_INVALID, on which the server drops the connection */
export function decodeClientMessage(bytes: Uint8Array): ClientMessage {
  const message = decodeObject(bytes, REQUEST_CONTAINERS)
  const { id, op, ...fields } = message
  const shape = isOperation(op) ? shapes[op] : undefined
  if (
    !isInteger(id) ||
    shape === undefined ||
    !Object.entries(shape).every(([name, check]) => check(fields[name])) ||
    !Object.keys(fields).every((name) => Object.hasOwn(shape, name))
  ) {
    throw invalid(bytes, 'it is not a request of the store')
  }
  return message as unknown as ClientMessage
}

/** @throws ERR_TSR_MESSAGE_INVALID */
export function decodeServerMessage(bytes: Uint8Array): ServerMessage {
  const message = decodeObject(bytes)
  const { id, closed, silent } = message
  const isOurs = closed === undefined && silent === undefined && isAnswer(message)
  if (!isInteger(id) || !isOurs) throw invalid(bytes, 'it is not an answer of the store')
  return message as unknown as ServerMessage
}

function isOperation(op: unknown): op is ClientMessage['op'] {
  return typeof op === 'string' && Object.hasOwn(shapes, op)
}

function decodeObject(bytes: Uint8Array, containers?: number): Readonly<Record<string, unknown>> {
  const message = decode(bytes, FRAME_LIMIT, containers)
  if (!isObject(message)) throw invalid(bytes, 'it is not an object')
  return message
}

function invalid(bytes: Uint8Array, reason: string): Error {
  return tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: bytes.byteLength, reason })
}
