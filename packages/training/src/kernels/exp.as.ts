// Powers with exponents that are at most 0. For a whole number n, 2^(n + r) = 2^n 2^r.

/** x y + z */
@inline
function linear<T>(x: v128, y: v128, z: f64): v128 {
  return v128.add<T>(v128.mul<T>(x, y), v128.splat<T>(<T>z))
}

/** log2(e): exp(x) = 2^(x log2(e)) */
export const LOG2_E: f32 = 1.44269504

/**
 * Returns 2^x for four floats that are at most 0, with a relative error of 1e-7. Returns 0 for x below
 * -126.5. In exp(x), the rounding of x log2(e) adds a relative error of about 7e-8 |x|.
 */
@inline
export function exp2(x: v128): v128 {
  const bounded = f32x4.pmax(x, f32x4.splat(-127))
  // Adding 1.5 2^23 rounds to a whole number, which is then in the low bits.
  const shifted = f32x4.add(bounded, f32x4.splat(12582912))
  const r = f32x4.sub(bounded, f32x4.sub(shifted, f32x4.splat(12582912)))
  // 2^r = 1 + c r + r^2 (a + r^2 b), with coefficients that minimize the largest error. The chain of
  // dependent operations is shorter than in Horner's scheme.
  const square = f32x4.mul(r, r)
  const a = linear<f32>(r, f32x4.splat(0.055503320), 0.24022648)
  let b = linear<f32>(r, f32x4.splat(0.0013399003), 0.0096184388)
  b = f32x4.add(b, f32x4.mul(square, f32x4.splat(0.00015353259)))
  const rest = f32x4.mul(square, f32x4.add(a, f32x4.mul(square, b)))
  const y = f32x4.add(f32x4.add(f32x4.mul(r, f32x4.splat(0.69314718)), rest), f32x4.splat(1))
  return f32x4.mul(y, i32x4.shl(i32x4.add(shifted, i32x4.splat(127)), 23))
}

/** Returns exp(x) of two doubles up to 0, with a relative error of 3e-13; 0 for x below -708. */
@inline
export function expOfDoubles(x: v128): v128 {
  const shifted = linear<f64>(x, f64x2.splat(1.4426950408889634), 6755399441055744)
  const n = f64x2.sub(shifted, f64x2.splat(6755399441055744))
  let r = f64x2.sub(x, f64x2.mul(n, f64x2.splat(0.6931471803691238)))
  r = f64x2.sub(r, f64x2.mul(n, f64x2.splat(1.9082149292705877e-10)))
  // The Taylor series, as sums of pairs.
  const square = f64x2.mul(r, r)
  const fourth = f64x2.mul(square, square)
  const a = f64x2.add(r, f64x2.splat(1))
  const b = linear<f64>(r, f64x2.splat(1 / 6.0), 0.5)
  const c = linear<f64>(r, f64x2.splat(1 / 120.0), 1 / 24.0)
  const d = linear<f64>(r, f64x2.splat(1 / 5040.0), 1 / 720.0)
  let e = linear<f64>(r, f64x2.splat(1 / 362880.0), 1 / 40320.0)
  e = f64x2.add(e, f64x2.mul(square, f64x2.splat(1 / 3628800.0)))
  e = f64x2.add(f64x2.add(c, f64x2.mul(square, d)), f64x2.mul(fourth, e))
  const y = f64x2.add(f64x2.add(a, f64x2.mul(square, b)), f64x2.mul(fourth, e))
  const power = i64x2.shl(i64x2.add(shifted, i64x2.splat(1023)), 52)
  return v128.andnot(f64x2.mul(y, power), f64x2.lt(x, f64x2.splat(-708)))
}
