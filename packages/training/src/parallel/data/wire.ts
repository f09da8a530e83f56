export const wireFormats = ['float32', 'float16', 'bfloat16'] as const

/** The form in which gradients travel: 16-bit forms halve the bytes, and lose precision. */
export type WireFormat = (typeof wireFormats)[number]

const float = new Float32Array(1)
const bits = new Uint32Array(float.buffer)

/**
 * Multiplies by `factor`, in float32, and rounds to the nearest, ties to even. `to` has one element
 * for each of `from`.
 */
export function encode(
  format: 'float16' | 'bfloat16',
  to: Uint16Array,
  from: Float32Array,
  factor: number,
): void {
  const convert = format === 'bfloat16' ? toBfloat16 : toFloat16
  for (let i = 0; i < from.length; i++) to[i] = convert(Math.fround(from[i]! * factor))
}

export function decode(format: 'float16' | 'bfloat16', to: Float32Array, from: Uint16Array): void {
  const convert = format === 'bfloat16' ? fromBfloat16 : fromFloat16
  for (let i = 0; i < to.length; i++) to[i] = convert(from[i]!)
}

function toBfloat16(value: number): number {
  float[0] = value
  const word = bits[0]!
  // a NaN must not become an infinity by rounding
  if (Number.isNaN(value)) return (word >>> 16) | 0x40
  return (word + 0x7fff + ((word >>> 16) & 1)) >>> 16
}

function fromBfloat16(half: number): number {
  bits[0] = half << 16
  return float[0]!
}

/** What is below is a multiple of it; numbers of this size and larger have an exponent. */
const SMALLEST_NORMAL = 2 ** -14
const SUBNORMAL_UNIT = 2 ** -24

function toFloat16(value: number): number {
  float[0] = value
  const word = bits[0]!
  const sign = (word >>> 16) & 0x8000
  const magnitude = word & 0x7fffffff
  if (magnitude > 0x7f800000) return sign | 0x7e00
  // from here on it rounds to infinity
  if (magnitude >= 0x477ff000) return sign | 0x7c00
  if (Math.abs(value) < SMALLEST_NORMAL) {
    return sign | roundToEven(Math.abs(float[0]) / SUBNORMAL_UNIT)
  }
  // another bias of the exponent, and ten bits of fraction in place of 23
  const rebased = magnitude - ((127 - 15) << 23)
  return sign | ((rebased + 0xfff + ((rebased >>> 13) & 1)) >>> 13)
}

function roundToEven(value: number): number {
  const floor = Math.floor(value)
  const rest = value - floor
  return rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? floor + 1 : floor
}

function fromFloat16(half: number): number {
  const sign = half & 0x8000 ? -1 : 1
  const exponent = (half >>> 10) & 31
  const fraction = half & 1023
  if (exponent === 0) return sign * fraction * SUBNORMAL_UNIT
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
}
