import { types } from 'node:util'
import { decode, encode, tsrError } from '@tsrun/core'
import { checkLimit, FRAME_LIMIT } from './limits.ts'
import type { ClientMessage, Operation, ServerMessage } from './requests.ts'

type Check = (value: unknown) => boolean

const isText: Check = (value) => typeof value === 'string'
const isTexts: Check = (value) => Array.isArray(value) && value.every(isText)
const isBytes: Check = types.isUint8Array
const isInteger: Check = Number.isSafeInteger
const isDuration: Check = (value) => typeof value === 'number' && value >= 0
const isTrue: Check = (value) => value === true
const isOptional =
  (check: Check): Check =>
  (value) =>
    value === undefined || check(value)

/** The fields of each message from a client; anything else in it is an error. */
const shapes: Readonly<Record<Operation | 'cancel', Readonly<Record<string, Check>>>> = {
  set: {
    key: isText,
    value: isBytes,
    timeToLive: isOptional(isDuration),
    whileConnected: isOptional(isTrue),
  },
  get: { key: isText },
  wait: { keys: isTexts },
  check: { keys: isTexts },
  add: { key: isText, amount: isInteger },
  compareSet: { key: isText, expected: isOptional(isBytes), desired: isBytes },
  append: { key: isText, value: isBytes },
  delete: { key: isText },
  list: { key: isText },
  queuePush: { key: isText, value: isBytes },
  queuePop: { key: isText },
  queueLength: { key: isText },
  watch: { key: isText },
  unwatch: { watch: isInteger },
  cancel: {},
}

/** @throws ERR_TSR_STORE_LIMIT when the message does not fit into a frame */
export function encodeMessage(what: string, message: ClientMessage | ServerMessage): Uint8Array {
  const bytes = encode(message, Infinity)
  checkLimit(what, bytes.byteLength, FRAME_LIMIT)
  return bytes
}

/** @throws ERR_TSR_MESSAGE_INVALID, for which the server drops the connection */
export function decodeClientMessage(bytes: Uint8Array): ClientMessage {
  const message = decodeObject(bytes)
  const { id, op, ...fields } = message
  const shape = isOperation(op) ? shapes[op] : undefined
  if (
    !isInteger(id) ||
    shape === undefined ||
    !Object.entries(shape).every(([name, check]) => check(fields[name])) ||
    !Object.keys(fields).every((name) => Object.hasOwn(shape, name))
  ) {
    throw invalid(bytes, 'not a request of the store')
  }
  return message as unknown as ClientMessage
}

/** @throws ERR_TSR_MESSAGE_INVALID */
export function decodeServerMessage(bytes: Uint8Array): ServerMessage {
  const message = decodeObject(bytes)
  if (!isInteger(message['id'])) throw invalid(bytes, 'not an answer of the store')
  return message as unknown as ServerMessage
}

function isOperation(op: unknown): op is Operation | 'cancel' {
  return typeof op === 'string' && Object.hasOwn(shapes, op)
}

function decodeObject(bytes: Uint8Array): Record<string, unknown> {
  const message = decode(bytes)
  if (typeof message !== 'object' || message === null) throw invalid(bytes, 'not an object')
  return message as Record<string, unknown>
}

function invalid(bytes: Uint8Array, reason: string): Error {
  return tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: bytes.byteLength, reason })
}
