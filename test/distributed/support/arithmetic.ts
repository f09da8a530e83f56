import type { DType, ReduceOp } from '@tsrun/distributed'

/** An element as its typed array gives it: for 16-bit floats the bits. */
export type Element = number | bigint

/** A format of 16-bit floats: bits of the mantissa, least exponent of a normal number, NaN. */
interface HalfFormat {
  readonly mantissa: number
  readonly least: number
  readonly nan: number
}

const halves: Partial<Record<DType, HalfFormat>> = {
  float16: { mantissa: 10, least: -14, nan: 0x7e00 },
  bfloat16: { mantissa: 7, least: -126, nan: 0x7fc0 },
}

/** The number that an element stands for. */
export function decode(dtype: DType, element: Element): Element {
  const format = halves[dtype]
  if (format === undefined) return element
  const { mantissa, least } = format
  const bits = Number(element)
  const exponents = 2 ** (15 - mantissa)
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits & 0x7fff) >> mantissa
  const fraction = bits & (2 ** mantissa - 1)
  if (exponent === exponents - 1) return fraction === 0 ? sign * Infinity : NaN
  if (exponent === 0) return sign * fraction * 2 ** (least - mantissa)
  return sign * (fraction + 2 ** mantissa) * 2 ** (least + exponent - 1 - mantissa)
}

/** The element of a dtype that is nearest to a number; integers wrap around. */
export function encode(dtype: DType, value: Element): Element {
  switch (dtype) {
    case 'float32':
      return Math.fround(Number(value))
    case 'float64':
      return Number(value)
    case 'float16':
    case 'bfloat16':
      return encodeHalf(Math.fround(Number(value)), halves[dtype]!)
    case 'int8':
    case 'int32':
    case 'int64':
      return sized(BigInt.asIntN(bitsOf[dtype], BigInt(value)), dtype)
    case 'uint8':
    case 'uint32':
    case 'uint64':
      return sized(BigInt.asUintN(bitsOf[dtype], BigInt(value)), dtype)
    case 'bool':
      return value ? 1 : 0
  }
}

const bitsOf = { int8: 8, uint8: 8, int32: 32, uint32: 32, int64: 64, uint64: 64 }

function sized(value: bigint, dtype: DType): Element {
  return dtype.endsWith('64') ? value : Number(value)
}

function encodeHalf(value: number, { mantissa, least, nan }: HalfFormat): number {
  if (Number.isNaN(value)) return nan
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0
  const infinity = 0x7fff - (2 ** mantissa - 1)
  const magnitude = Math.abs(value)
  if (magnitude === Infinity) return sign | infinity
  let exponent = Math.max(least, Math.floor(Math.log2(magnitude)))
  // the logarithm may be rounded across the next integer
  if (exponent > least && 2 ** exponent > magnitude) exponent--
  if (2 ** (exponent + 1) <= magnitude) exponent++
  const units = roundToEven(magnitude / 2 ** (exponent - mantissa))
  // a subnormal number counts units from 0, a normal one from 2^mantissa
  const bits = (exponent - least) * 2 ** mantissa + units
  return sign | Math.min(infinity, bits)
}

function roundToEven(value: number): number {
  const below = Math.floor(value)
  const rest = value - below
  return rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? below + 1 : below
}

/** The reduction of two elements, one after the other, in plain arithmetic. */
export function combine(dtype: DType, op: ReduceOp, a: Element, b: Element): Element {
  const [x, y] = [decode(dtype, a), decode(dtype, b)]
  if (dtype === 'bool') return combineTruths(op, x !== 0, y !== 0) ? 1 : 0
  if (typeof x === 'bigint' || isInteger(dtype)) {
    return encode(dtype, combineIntegers(op, BigInt(x), BigInt(y)))
  }
  return encode(dtype, combineFloats(op, x, Number(y)))
}

function isInteger(dtype: DType): boolean {
  return Object.hasOwn(bitsOf, dtype)
}

function combineTruths(op: ReduceOp, a: boolean, b: boolean): boolean {
  if (op === 'sum' || op === 'max' || op === 'bor') return a || b
  return op === 'bxor' ? a !== b : a && b
}

function combineIntegers(op: ReduceOp, a: bigint, b: bigint): bigint {
  switch (op) {
    case 'product':
      return a * b
    case 'min':
      return a < b ? a : b
    case 'max':
      return a > b ? a : b
    case 'band':
      return a & b
    case 'bor':
      return a | b
    case 'bxor':
      return a ^ b
    case 'sum':
    case 'avg':
    default:
      return a + b
  }
}

function combineFloats(op: ReduceOp, a: number, b: number): number {
  if (op === 'product') return a * b
  if (op === 'min') return Math.min(a, b)
  return op === 'max' ? Math.max(a, b) : a + b
}

/** An element times a factor that is rounded to float32 for all dtypes but float64. */
export function scaled(dtype: DType, element: Element, factor: number): Element {
  const value = Number(decode(dtype, element))
  return encode(dtype, value * (dtype === 'float64' ? factor : Math.fround(factor)))
}
