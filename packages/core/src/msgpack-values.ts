import { host } from '#host'
import type * as Msgpackr from 'msgpackr'

/*
 * Encodes values that MessagePack lacks. A *tag* is a MessagePack extension followed by a list with
 * the contents of the value.
 */

/** A value that is encoded as an extension type (tag) followed by a list. */
class Tagged {
  readonly list: readonly unknown[]

  constructor(list: readonly unknown[]) {
    this.list = list
  }
}

class MapEntries extends Tagged {}
/** An object with a key `__proto__`, which a MessagePack map must not have. */
class ObjectEntries extends Tagged {}
class SetMembers extends Tagged {}
class ErrorParts extends Tagged {}
/** The class name and the bytes of a typed array, ArrayBuffer or DataView. */
class Bytes extends Tagged {}
class MinusZero extends Tagged {}
const minusZero = new MinusZero([])

/** The constructors of typed arrays and DataView that decoding uses, by class name. */
const byteClasses: ReadonlyMap<unknown, new (buffer: ArrayBuffer) => unknown> = new Map(
  [
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
    DataView,
  ].map((type) => [type.name, type]),
)

const errors: ReadonlyMap<unknown, ErrorConstructor> = new Map(
  [Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError].map((type) => [
    type.name,
    type,
  ]),
)

/** The tags, by extension type. */
const tags = {
  0x4d: {
    Class: MapEntries,
    read: (list: readonly unknown[]) => new Map(pairsOf(list, (key) => key)),
  },
  0x6f: {
    Class: ObjectEntries,
    read: (list: readonly unknown[]) => Object.fromEntries(pairsOf(list, textOf)),
  },
  0x73: { Class: SetMembers, read: (list: readonly unknown[]) => new Set(list) },
  0x65: { Class: ErrorParts, read: errorOf },
  0x62: { Class: Bytes, read: bytesOf },
  0x2d: { Class: MinusZero, read: () => -0 },
}

/** Extension types that are not followed by a list. */
const whole: ReadonlySet<number> = new Set([
  0x00, // encodes undefined
  0x42, // encodes a bigint
  0xff, // encodes a Date
])

/** Returns how this encoder writes an extension type; undefined for types that it does not write. */
export function formOf(type: number): 'tag' | 'whole' | undefined {
  if (Object.hasOwn(tags, type)) return 'tag'
  return whole.has(type) ? 'whole' : undefined
}

/** Registers the tags. They replace readers of msgpackr, some of which trust their input. */
export function addExtensions({ addExtension }: Pick<typeof Msgpackr, 'addExtension'>): void {
  for (const [type, tag] of Object.entries(tags)) {
    addExtension({ ...tag, type: Number(type), write: ({ list }: Tagged) => list })
  }
}

/**
 * Replaces values that MessagePack cannot represent by tags. Copies only the parts that change.
 *
 * @param most - limit on the number of objects. An object that appears twice counts twice.
 * @throws Error for an object inside itself, or a typed array class that the reader may not have
 */
export function toEncodable(message: unknown, most: number): unknown {
  const outer: object[] = []
  let count = 0

  const convert = (value: unknown): unknown => {
    if (typeof value === 'number') return Object.is(value, -0) ? minusZero : value
    if (typeof value === 'function') return undefined
    return typeof value === 'object' && value !== null ? convertObject(value) : value
  }

  const convertObject = (object: object): unknown => {
    if (outer.includes(object)) throw new Error('an object contains itself')
    if (++count > most) throw new Error(`it has more than ${most} objects`)
    outer.push(object)
    const value = jsonOf(object)
    const hasParts = typeof value === 'object' && value !== null
    const converted = hasParts ? convertParts(value) : convert(value)
    outer.pop()
    return converted
  }

  const convertParts = (value: object): unknown => {
    if (Array.isArray(value)) return convertList(value)
    if (Object.getPrototypeOf(value) === Object.prototype) return convertFields(value)
    if (host.isBuffer(value)) return value
    if (ArrayBuffer.isView(value) || host.types.isAnyArrayBuffer(value)) return bytesIn(value)
    if (host.types.isMap(value)) return new MapEntries(convertList(flat(value)))
    if (host.types.isSet(value)) return new SetMembers(convertList([...value]))
    if (host.types.isDate(value)) return new Date(Number(value))
    if (value instanceof Error || host.types.isNativeError(value)) {
      const { name, message, cause } = value as Readonly<
        Record<'name' | 'message' | 'cause', unknown>
      >
      return new ErrorParts(convertList([String(name), String(message), cause]))
    }
    return convertFields(value)
  }

  const convertList = (list: readonly unknown[]): readonly unknown[] => {
    let copy: unknown[] | undefined
    for (let i = 0; i < list.length; i++) {
      const part = convert(list[i])
      if (Object.is(part, list[i])) continue
      copy ??= Array.from(list)
      copy[i] = part
    }
    return copy ?? list
  }

  const convertFields = (value: object): unknown => {
    const fields = value as Readonly<Record<string, unknown>>
    let copy: Record<string, unknown> | undefined
    for (const key of Object.keys(fields)) {
      const part = convert(fields[key])
      if (Object.is(part, fields[key])) continue
      copy ??= { ...fields }
      copy[key] = part
    }
    const result = copy ?? fields
    return Object.hasOwn(result, '__proto__')
      ? new ObjectEntries(flat(Object.entries(result)))
      : result
  }

  return convert(message)
}

/** Returns what JSON would encode, but keeps Dates and Buffers. A RegExp becomes its source text. */
function jsonOf(value: object): unknown {
  if (host.types.isRegExp(value)) return String(value)
  const { toJSON } = value as { readonly toJSON?: unknown }
  if (typeof toJSON !== 'function' || host.types.isDate(value) || host.isBuffer(value)) return value
  return toJSON.call(value) as unknown
}

function bytesIn(value: ArrayBufferView | ArrayBufferLike): Bytes {
  const name = (value as NodeJS.ArrayBufferView)[Symbol.toStringTag]
  if (name !== 'ArrayBuffer' && !byteClasses.has(name)) throw new Error(`a ${name}`)
  return new Bytes([name, host.bytesOf(value)])
}

function bytesOf([name, bytes]: readonly unknown[]): unknown {
  const type = byteClasses.get(name)
  const isKnown = type !== undefined || name === 'ArrayBuffer'
  if (!isKnown || !host.types.isUint8Array(bytes)) {
    throw new Error('it has bytes of an unknown class')
  }
  const { buffer } = new Uint8Array(bytes)
  return type === undefined ? buffer : new type(buffer)
}

function flat(pairs: Iterable<readonly [unknown, unknown]>): readonly unknown[] {
  const list: unknown[] = []
  for (const [key, value] of pairs) list.push(key, value)
  return list
}

/** Yields one pair at a time, because an array for each pair takes far more memory than the message. */
function* pairsOf<Key>(
  list: readonly unknown[],
  keyOf: (key: unknown) => Key,
): Generator<[Key, unknown]> {
  if (list.length % 2 !== 0) throw new Error('it has a key without a value')
  for (let i = 0; i < list.length; i += 2) yield [keyOf(list[i]), list[i + 1]]
}

function errorOf([name, message, cause]: readonly unknown[]) {
  const options = cause === undefined ? undefined : { cause }
  const type = errors.get(name)
  if (type !== undefined) return new type(textOf(message), options)
  return Object.assign(new Error(textOf(message), options), { name: textOf(name) })
}

function textOf(value: unknown) {
  if (typeof value !== 'string') throw new Error('it has another value in the place of a text')
  return value
}
