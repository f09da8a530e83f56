// Powers with exponents that are at most 0. For a whole number n, 2^(n + r) = 2^n 2^r.
//
// The constants are variables: V8 reads a variable with one instruction, but composes a constant vector
// from several, again in each iteration of a loop.
import { addProduct } from './lanes.as'

/** log2(e): exp(x) = 2^(x log2(e)) */
export const LOG2_E: f32 = 1.44269504

/** 2^x is 0 for all smaller x. */
let LEAST: v128 = f32x4.splat(-127)
/** Adding it rounds to a whole number, which is then in the low bits. */
let SHIFT: v128 = f32x4.splat(12582912)
/** The bias of the exponent of a float. */
let BIAS: v128 = i32x4.splat(127)
// 2^r as a polynomial, with coefficients that minimize the largest error.
export let ONE: v128 = f32x4.splat(1)
let C1: v128 = f32x4.splat(0.69314718)
let C2: v128 = f32x4.splat(0.24022648)
let C3: v128 = f32x4.splat(0.055503320)
let C4: v128 = f32x4.splat(0.0096184388)
let C5: v128 = f32x4.splat(0.0013399003)
let C6: v128 = f32x4.splat(0.00015353259)

/**
 * Returns 2^x for four floats that are at most 0, with a relative error of 1e-7. Returns 0 for x below
 * -126.5. In exp(x), the rounding of x log2(e) adds a relative error of about 7e-8 |x|.
 */
@inline
export function exp2(x: v128): v128 {
  const bounded = f32x4.pmax(x, LEAST)
  const shifted = f32x4.add(bounded, SHIFT)
  const r = f32x4.sub(bounded, f32x4.sub(shifted, SHIFT))
  // The chain of dependent operations is shorter than in Horner's scheme.
  const square = f32x4.mul(r, r)
  const a = addProduct(C2, r, C3)
  const b = addProduct(addProduct(C4, r, C5), square, C6)
  const rest = f32x4.mul(square, addProduct(a, square, b))
  const y = f32x4.add(addProduct(rest, r, C1), ONE)
  return f32x4.mul(y, i32x4.shl(i32x4.add(shifted, BIAS), 23))
}

// The same for doubles, with the Taylor series of exp(r).
let LEAST_DOUBLE: v128 = f64x2.splat(-708)
let SHIFT_DOUBLE: v128 = f64x2.splat(6755399441055744)
let BIAS_DOUBLE: v128 = i64x2.splat(1023)
let LOG2_E_DOUBLE: v128 = f64x2.splat(1.4426950408889634)
/** The sum of both is the logarithm of 2. */
let LN2_HIGH: v128 = f64x2.splat(0.6931471803691238)
let LN2_LOW: v128 = f64x2.splat(1.9082149292705877e-10)
let D0: v128 = f64x2.splat(1)
let D2: v128 = f64x2.splat(0.5)
let D3: v128 = f64x2.splat(1 / 6.0)
let D4: v128 = f64x2.splat(1 / 24.0)
let D5: v128 = f64x2.splat(1 / 120.0)
let D6: v128 = f64x2.splat(1 / 720.0)
let D7: v128 = f64x2.splat(1 / 5040.0)
let D8: v128 = f64x2.splat(1 / 40320.0)
let D9: v128 = f64x2.splat(1 / 362880.0)
let D10: v128 = f64x2.splat(1 / 3628800.0)

/** x y + z */
@inline
function linear(x: v128, y: v128, z: v128): v128 {
  return f64x2.add(f64x2.mul(x, y), z)
}

/** Returns exp(x) of two doubles up to 0, with a relative error of 3e-13; 0 for x below -708. */
@inline
export function expOfDoubles(x: v128): v128 {
  const shifted = linear(x, LOG2_E_DOUBLE, SHIFT_DOUBLE)
  const n = f64x2.sub(shifted, SHIFT_DOUBLE)
  const r = f64x2.sub(f64x2.sub(x, f64x2.mul(n, LN2_HIGH)), f64x2.mul(n, LN2_LOW))
  // The Taylor series, as sums of pairs.
  const square = f64x2.mul(r, r)
  const fourth = f64x2.mul(square, square)
  const a = f64x2.add(r, D0)
  const b = linear(r, D3, D2)
  const c = linear(r, D5, D4)
  const d = linear(r, D7, D6)
  let e = f64x2.add(linear(r, D9, D8), f64x2.mul(square, D10))
  e = f64x2.add(f64x2.add(c, f64x2.mul(square, d)), f64x2.mul(fourth, e))
  const y = f64x2.add(f64x2.add(a, f64x2.mul(square, b)), f64x2.mul(fourth, e))
  const power = i64x2.shl(i64x2.add(shifted, BIAS_DOUBLE), 52)
  return v128.andnot(f64x2.mul(y, power), f64x2.lt(x, LEAST_DOUBLE))
}
