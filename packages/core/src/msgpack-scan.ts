/*
 * A look at the tokens of a MessagePack message before it is decoded. A container of no elements is one
 * byte long and becomes an object of a hundred, so a message is refused by its containers, not only by
 * its bytes. msgpackr reads the elements of a container, of a record and of most extensions as further
 * tokens, so that one pass over the tokens sees all of them.
 */

const RECORD = 0x72
/** Extension types of msgpackr, and of `codec.ts`, that our encoder writes. */
const EXTENSIONS: ReadonlySet<number> = new Set([
  0x00, // undefined
  0x10, // an ArrayBuffer
  0x11, // a DataView
  0x42, // a bigint
  0x54, // a typed array of another realm
  0x65, // an Error
  0x69, // an object that is referred to again
  0x70, // such a reference
  RECORD,
  0x73, // a Set
  0x74, // a typed array
  0x78, // a RegExp
  0xff, // a Date
])

/** By token: the bytes of its number, where that is all. */
const FIXED: Readonly<Partial<Record<number, number>>> = {
  ...{ 0xc0: 0, 0xc2: 0, 0xc3: 0 },
  ...{ 0xca: 4, 0xcb: 8, 0xcc: 1, 0xcd: 2, 0xce: 4, 0xcf: 8, 0xd0: 1, 0xd1: 2, 0xd2: 4, 0xd3: 8 },
  // the lengths of arrays and maps
  ...{ 0xdc: 2, 0xdd: 4, 0xde: 2, 0xdf: 4 },
}
/** By token: the bytes of the length of what follows. */
const SIZED: Readonly<Partial<Record<number, 1 | 2 | 4>>> = {
  ...{ 0xc4: 1, 0xc5: 2, 0xc6: 4, 0xc7: 1, 0xc8: 2, 0xc9: 4, 0xd9: 1, 0xda: 2, 0xdb: 4 },
}

/**
 * Checks that a message consists of whole tokens, with extensions that our encoder writes.
 *
 * @param most - containers: arrays, maps, records and extensions
 * @throws Error that describes the problem
 */
export function scanMessage(bytes: Uint8Array, most: number): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  let containers = 0
  let hasRecords = false
  const lengthAt = (at: number, size: 1 | 2 | 4): number => {
    if (at + size > bytes.length) throw new Error('it ends in the middle of a value')
    if (size === 1) return view.getUint8(at)
    return size === 2 ? view.getUint16(at) : view.getUint32(at)
  }
  for (let at = 0; at < bytes.length;) {
    const token = bytes[at++]!
    if (token < 0x80 || token >= 0xe0) {
      // with records, these are objects of the shape that has this number
      if (hasRecords && token >= 0x40 && token < 0x80) containers++
    } else if (token < 0xa0) containers++
    else if (token < 0xc0) at += token & 31
    else if (token >= 0xd4 && token <= 0xd8) {
      containers++
      if (extensionAt(bytes, at) === RECORD) hasRecords = true
      at += 1 + (1 << (token - 0xd4))
    } else if (FIXED[token] !== undefined) {
      if (token >= 0xdc) containers++
      at += FIXED[token]
    } else {
      const size = SIZED[token]
      if (size === undefined) throw new Error('it has a byte that MessagePack does not use')
      const length = lengthAt(at, size)
      at += size + length
      if (token >= 0xc7 && token <= 0xc9) {
        containers++
        if (extensionAt(bytes, at - length) === RECORD) hasRecords = true
        at++
      }
    }
    if (at > bytes.length) throw new Error('it ends in the middle of a value')
    if (containers > most) throw new Error(`it has more than ${String(most)} containers`)
  }
}

/** The type of an extension. @throws Error for one that our encoder does not write */
function extensionAt(bytes: Uint8Array, at: number): number {
  const type = bytes[at]
  if (type !== undefined && EXTENSIONS.has(type)) return type
  throw new Error(`it has an extension of the unknown type ${String(type)}`)
}
