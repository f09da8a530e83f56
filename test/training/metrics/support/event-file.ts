import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** The fields of a message: numbers, or bytes that may be a message. */
export type Fields = ReadonlyMap<number, readonly (number | Buffer)[]>

/** The checksum of TFRecord, bit by bit as Castagnoli's polynomial is defined. */
function checksum(data: Buffer): number {
  let value = 0xffffffff
  for (const byte of data) {
    for (let bit = 0; bit < 8; bit++) {
      const isOdd = ((value ^ (byte >>> bit)) & 1) === 1
      value = isOdd ? (value >>> 1) ^ 0x82f63b78 : value >>> 1
    }
  }
  const crc = (value ^ 0xffffffff) >>> 0
  return (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0
}

export function parse(message: Buffer): Fields {
  const fields = new Map<number, (number | Buffer)[]>()
  let at = 0
  const varint = (): number => {
    let value = 0
    for (let shift = 0; ; shift += 7) {
      const byte = message[at++]!
      value += (byte & 127) * 2 ** shift
      if (byte < 128) return value
    }
  }
  while (at < message.length) {
    const key = varint()
    const field = Math.floor(key / 8)
    const values = fields.get(field) ?? []
    fields.set(field, values)
    if (key % 8 === 0) values.push(varint())
    else if (key % 8 === 1) values.push(message.readDoubleLE((at += 8) - 8))
    else if (key % 8 === 5) values.push(message.readFloatLE((at += 4) - 4))
    else if (key % 8 === 2) {
      const length = varint()
      values.push(message.subarray(at, (at += length)))
    } else throw new Error(`wire type ${key % 8}`)
  }
  return fields
}

/** The events of the only file of a folder, whose checksums are right. */
export function eventsIn(folder: string): Fields[] {
  const [name, ...others] = readdirSync(folder)
  if (name === undefined || others.length > 0) throw new Error('not one file')
  const file = readFileSync(join(folder, name))
  const events: Fields[] = []
  for (let at = 0; at < file.length;) {
    const length = Number(file.readBigUInt64LE(at))
    const data = file.subarray(at + 12, at + 12 + length)
    const found = [file.readUInt32LE(at + 8), file.readUInt32LE(at + 12 + length)]
    const wanted = [checksum(file.subarray(at, at + 8)), checksum(data)]
    if (found.join() !== wanted.join()) throw new Error(`checksums ${found.join()}`)
    events.push(parse(data))
    at += 16 + length
  }
  return events
}
