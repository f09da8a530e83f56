import { hostname } from 'node:os'
import { join as joinPath } from 'node:path'
import { histogramOf } from './histogram.ts'
import { logOfRank, type Entry, type MetricLog, type MetricLogOptions } from './metric-log.ts'

let files = 0

/**
 * Writes metrics for TensorBoard: an event file in a folder, for `tensorboard --logdir`. Each start
 * or restart of the training writes a new file; TensorBoard shows all files of a folder as one run.
 * If all ranks write, each has a subfolder `rank-N`.
 *
 * The files contain TFRecord records. Each record is an `Event` of
 * github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto/event.proto.
 *
 * @throws ERR_TSR_ARGUMENT
 *
 * @example
 * await run.fit(data, { epochs: 3, log: [tensorBoard('runs/first')] })
 */
export function tensorBoard(directory: string, options: MetricLogOptions = {}): MetricLog {
  return logOfRank(directory, options, {
    fileOf(path, rank) {
      const folder = rank === undefined ? path : joinPath(path, `rank-${rank}`)
      const seconds = Math.floor(Date.now() / 1000)
      const name = `events.out.tfevents.${seconds}.${hostname()}.${process.pid}.${files++}`
      return joinPath(folder, name)
    },
    begin: () => recordOf(event(0, bytesField(3, 'brain.Event:2'))),
    encode(tag, step, entry) {
      const summary = bytesField(1, join([bytesField(1, tag), valueOf(entry)]))
      return recordOf(event(step, bytesField(5, summary)))
    },
  })
}

function event(step: number, content: Uint8Array): Uint8Array {
  return join([doubleField(1, Date.now() / 1000), varintField(2, step), content])
}

/** Encodes a TensorProto with one string, and the name of the TensorBoard plugin for texts. */
function textValue(text: string): Uint8Array {
  const [STRING, TENSOR] = [7, 2]
  const shape = bytesField(2, varintField(1, 1))
  const tensor = join([varintField(1, STRING), bytesField(2, shape), bytesField(8, text)])
  const plugin = bytesField(1, bytesField(1, 'text'))
  return join([bytesField(8, tensor), bytesField(9, join([plugin, varintField(4, TENSOR)]))])
}

function valueOf(entry: Entry): Uint8Array {
  if ('text' in entry) return textValue(entry.text)
  if ('values' in entry) return bytesField(5, histogramProto(entry.values))
  return floatField(2, entry.value)
}

function histogramProto(values: ArrayLike<number>): Uint8Array {
  const { min, max, count, sum, sumOfSquares, limits, counts } = histogramOf(values)
  return join([
    ...[min, max, count, sum, sumOfSquares].map((value, i) => doubleField(i + 1, value)),
    doublesField(6, limits),
    doublesField(7, counts),
  ])
}

/** A TFRecord record: length, checksum of the length, data, checksum of the data. */
function recordOf(data: Uint8Array): Uint8Array {
  const record = Buffer.alloc(16 + data.length)
  record.writeBigUInt64LE(BigInt(data.length), 0)
  record.writeUInt32LE(masked(crc32c(record.subarray(0, 8))), 8)
  record.set(data, 12)
  record.writeUInt32LE(masked(crc32c(data)), 12 + data.length)
  return record
}

/** Masks a CRC, as TFRecord requires. The CRC of data that contains unmasked CRCs would be weak. */
function masked(checksum: number) {
  return (((checksum >>> 15) | (checksum << 17)) + 0xa282ead8) >>> 0
}

/** The CRC-32C of each byte value, by the reflected polynomial of Castagnoli (1993). */
const table = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte
  for (let bit = 0; bit < 8; bit++) value = (value >>> 1) ^ (value & 1 ? 0x82f63b78 : 0)
  return value
})

function crc32c(data: Uint8Array) {
  let value = 0xffffffff
  for (const byte of data) value = table[(value ^ byte) & 255]! ^ (value >>> 8)
  return (value ^ 0xffffffff) >>> 0
}

/*
 * Encodes Protocol Buffers messages (protobuf.dev/programming-guides/encoding), limited to the
 * field types that TensorBoard uses. The host is little-endian, as for safetensors files.
 */

function varintField(field: number, value: number): Uint8Array {
  return join([varint(field * 8), varint(value)])
}

function doubleField(field: number, value: number): Uint8Array {
  return join([varint(field * 8 + 1), doubles([value])])
}

function floatField(field: number, value: number): Uint8Array {
  const bytes = new Uint8Array(Float32Array.of(value).buffer)
  return join([varint(field * 8 + 5), bytes])
}

/** Encodes a field with bytes, a string or an embedded message. */
function bytesField(field: number, value: Uint8Array | string): Uint8Array {
  const bytes = typeof value === 'string' ? Buffer.from(value) : value
  return join([varint(field * 8 + 2), varint(bytes.length), bytes])
}

function doublesField(field: number, values: readonly number[]): Uint8Array {
  return bytesField(field, doubles(values))
}

function join(parts: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat(parts)
}

function doubles(values: readonly number[]): Uint8Array {
  return new Uint8Array(Float64Array.from(values).buffer)
}

/** Encodes seven bits per byte, lowest first. All bytes but the last have the highest bit set. */
function varint(value: number): Uint8Array {
  const bytes: number[] = []
  let rest = value
  while (rest > 127) {
    bytes.push((rest % 128) + 128)
    rest = Math.floor(rest / 128)
  }
  return Uint8Array.from([...bytes, rest])
}
