/*
 * The wire format of Protocol Buffers (protobuf.dev/programming-guides/encoding), as far as the messages
 * of TensorBoard need it.
 */

const encoder = new TextEncoder()

/** A field with an integer from 0. */
export function varintField(field: number, value: number): Uint8Array {
  return join([varint(field * 8), varint(value)])
}

export function doubleField(field: number, value: number): Uint8Array {
  return join([varint(field * 8 + 1), doubles([value])])
}

export function floatField(field: number, value: number): Uint8Array {
  const bytes = new Uint8Array(4)
  new DataView(bytes.buffer).setFloat32(0, value, true)
  return join([varint(field * 8 + 5), bytes])
}

/** A field with bytes, a text or a message. */
export function bytesField(field: number, value: Uint8Array | string): Uint8Array {
  const bytes = typeof value === 'string' ? encoder.encode(value) : value
  return join([varint(field * 8 + 2), varint(bytes.length), bytes])
}

/** A packed field with several doubles. */
export function doublesField(field: number, values: readonly number[]): Uint8Array {
  return bytesField(field, doubles(values))
}

export function join(parts: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat(parts)
}

function doubles(values: readonly number[]): Uint8Array {
  const bytes = new Uint8Array(8 * values.length)
  const view = new DataView(bytes.buffer)
  for (const [i, value] of values.entries()) view.setFloat64(8 * i, value, true)
  return bytes
}

/** Seven bits per byte, lowest first; the highest bit is set in all bytes but the last. */
function varint(value: number): Uint8Array {
  const bytes: number[] = []
  let rest = value
  while (rest > 127) {
    bytes.push((rest % 128) + 128)
    rest = Math.floor(rest / 128)
  }
  return Uint8Array.from([...bytes, rest])
}
