import { host } from '#host'
import type * as Msgpackr from 'msgpackr'

/*
 * Encodes values that MessagePack lacks. A *tag* is a MessagePack extension followed by a list with
 * the contents of the value. A *reference* is an extension with the number of an object. Objects
 * are numbered in order of appearance; the outermost one is 0.
 */

/** A value that is encoded as a tag and a list. */
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

class Reference {
  readonly number: number

  constructor(number: number) {
    this.number = number
  }
}

/**
 * Constructors of the byte containers, by class name, besides ArrayBuffer. They create instances in
 * the realm of the reader.
 */
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

const REFERENCE = 0x70

/** Extension types that are not followed by a list. */
const whole: ReadonlySet<number> = new Set([
  0x00, // encodes undefined
  0x42, // encodes a bigint
  0xff, // encodes a Date
])

/** Returns the form of an extension type of this encoder; undefined for types of other programs. */
export function formOf(type: number): 'tag' | 'reference' | 'whole' | undefined {
  if (Object.hasOwn(tags, type)) return 'tag'
  if (type === REFERENCE) return 'reference'
  return whole.has(type) ? 'whole' : undefined
}

/**
 * Registers the extensions with msgpackr. It replaces msgpackr's own readers of the same types,
 * some of which trust their input.
 */
export function addExtensions({ addExtension }: Pick<typeof Msgpackr, 'addExtension'>): void {
  for (const [type, tag] of Object.entries(tags)) {
    addExtension({ ...tag, type: Number(type), write: ({ list }: Tagged) => list })
  }
  addExtension({
    Class: Reference,
    type: REFERENCE,
    pack: ({ number }: Reference) => {
      const bytes = new Uint8Array(4)
      new DataView(bytes.buffer).setUint32(0, number)
      return bytes
    },
    unpack: (bytes) =>
      new Reference(new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(0)),
  })
}

/**
 * Replaces values that MessagePack lacks by tags and references. Copies only the parts that change.
 *
 * @throws Error for a typed array class that the reader may not have
 */
export function toEncodable(message: unknown): unknown {
  const numbers = new Map<object, number>()
  let count = 0

  const convert = (value: unknown): unknown => {
    if (typeof value === 'number') return Object.is(value, -0) ? minusZero : value
    if (typeof value === 'function') return undefined
    return typeof value === 'object' && value !== null ? convertObject(value) : value
  }

  const convertObject = (original: object): unknown => {
    const known = numbers.get(original)
    if (known !== undefined) return new Reference(known)
    const value = jsonOf(original)
    if (typeof value !== 'object' || value === null) return convert(value)
    if (value !== original) {
      const number = numbers.get(value)
      if (number !== undefined) return new Reference(number)
      numbers.set(value, count)
    }
    numbers.set(original, count++)
    return convertParts(value)
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

/**
 * Replaces references by the objects that they refer to.
 *
 * @throws Error for a reference to an object that has not appeared yet
 */
export function resolveReferences(value: unknown): unknown {
  const begun: object[] = []
  const resolve = (part: unknown): unknown => {
    if (typeof part !== 'object' || part === null) return part
    if (part.constructor === Reference) {
      const object = begun[(part as Reference).number]
      if (object === undefined) throw new Error('it refers to an object that it does not have')
      return object
    }
    begun.push(part)
    if (Array.isArray(part)) {
      for (let i = 0; i < part.length; i++) part[i] = resolve(part[i])
    } else if (host.types.isMap(part)) {
      const entries = new Map(part)
      part.clear()
      for (const [key, field] of entries) part.set(resolve(key), resolve(field))
    } else if (host.types.isSet(part)) {
      const members = [...part]
      part.clear()
      for (const member of members) part.add(resolve(member))
    } else if (host.types.isNativeError(part)) {
      if (part.cause !== undefined) part.cause = resolve(part.cause)
    } else if (Object.getPrototypeOf(part) === Object.prototype) {
      const fields = part as Record<string, unknown>
      for (const key of Object.keys(fields)) fields[key] = resolve(fields[key])
    }
    return part
  }
  return resolve(value)
}

/**
 * Returns the value that JSON would encode for an object. Dates and Buffers are kept; a RegExp
 * becomes its source text.
 */
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
