/*
 * Encodes Protocol Buffers messages (protobuf.dev/programming-guides/encoding), limited to the
 * field types that TensorBoard uses.
 */

const encoder = new TextEncoder()

/** Encodes a field with a non-negative integer. */
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

/** Encodes a field with bytes, a string or an embedded message. */
export function bytesField(field: number, value: Uint8Array | string): Uint8Array {
  const bytes = typeof value === 'string' ? encoder.encode(value) : value
  return join([varint(field * 8 + 2), varint(bytes.length), bytes])
}

/** Encodes a packed repeated field of doubles. */
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

/**
 * Encodes a varint: seven bits per byte, lowest bits first. The highest bit of a byte is set unless
 * the byte is the last.
 */
function varint(value: number): Uint8Array {
  const bytes: number[] = []
  let rest = value
  while (rest > 127) {
    bytes.push((rest % 128) + 128)
    rest = Math.floor(rest / 128)
  }
  return Uint8Array.from([...bytes, rest])
}
