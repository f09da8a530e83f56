// Combine one 16-byte vector: out = a op b for each reduction and element type. `op` stays the same in a
// loop, so the processor predicts the comparisons. Conditions on T are evaluated when a function is
// compiled for T, so instructions that T lacks are left out.

/** The codes of reductions, as in ../reduction.ts. The code of a sum is 1. */
const AVG: i32 = 2
export const PRODUCT: i32 = 3
export const MIN: i32 = 4
const MAX: i32 = 5
export const BAND: i32 = 6
const BOR: i32 = 7
export const BXOR: i32 = 8
/** The operations of bool: each byte except 0 is true, and results are 0 or 1. */
export const ALL: i32 = 9
export const ANY: i32 = 10
export const ODD: i32 = 11

@inline
export function combineVectors<T>(op: i32, a: v128, b: v128): v128 {
  // An average is a sum, which the caller scales.
  if (op <= AVG) return v128.add<T>(a, b)
  if (op == PRODUCT) return multiply<T>(a, b)
  if (op == MIN) return minimum<T>(a, b)
  if (op == MAX) return maximum<T>(a, b)
  if (op == BAND) return v128.and(a, b)
  if (op == BOR) return v128.or(a, b)
  if (op == ALL) return v128.and(truth(a), truth(b))
  if (op == ANY) return truth(v128.or(a, b))
  if (op == ODD) return v128.xor(truth(a), truth(b))
  return v128.xor(a, b)
}

@inline
function truth(x: v128): v128 {
  return i8x16.min_u(x, i8x16.splat(1))
}

@inline
function multiply<T>(a: v128, b: v128): v128 {
  if (sizeof<T>() == 1) {
    // WebAssembly cannot multiply bytes. Multiply as 16-bit words and keep the low bytes.
    const low = v128.and(i16x8.extmul_low_i8x16_u(a, b), i16x8.splat(0xff))
    const high = v128.and(i16x8.extmul_high_i8x16_u(a, b), i16x8.splat(0xff))
    return i8x16.narrow_i16x8_u(low, high)
  } else {
    return v128.mul<T>(a, b)
  }
}

@inline
function minimum<T>(a: v128, b: v128): v128 {
  if (isInteger<T>() && sizeof<T>() == 8) return v128.bitselect(b, a, isGreater<T>(a, b))
  else return v128.min<T>(a, b)
}

@inline
function maximum<T>(a: v128, b: v128): v128 {
  if (isInteger<T>() && sizeof<T>() == 8) return v128.bitselect(a, b, isGreater<T>(a, b))
  else return v128.max<T>(a, b)
}

/**
 * Compares 64-bit integers. With the highest bit flipped, unsigned integers compare like signed
 * ones.
 */
@inline
function isGreater<T>(a: v128, b: v128): v128 {
  if (isSigned<T>()) return i64x2.gt_s(a, b)
  const flip = i64x2.splat(i64.MIN_VALUE)
  return i64x2.gt_s(v128.xor(a, flip), v128.xor(b, flip))
}
