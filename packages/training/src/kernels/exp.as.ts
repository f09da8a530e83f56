// exp(x) for x of at most 0. If x = n log 2 + r with a whole number n, exp(x) = 2^n exp(r).

/** x y + z */
// @ts-ignore: decorator
@inline
function linear<T>(x: v128, y: v128, z: f64): v128 {
  return v128.add<T>(v128.mul<T>(x, y), v128.splat<T>(<T>z))
}

/** exp of four floats, with a relative error of 1e-7; 0 for x below -87.3. */
// @ts-ignore: decorator
@inline
export function exp(x: v128): v128 {
  // Adding 1.5 2^23 rounds to a whole number, which is then in the low bits.
  const shifted = linear<f32>(x, f32x4.splat(1.44269504), 12582912)
  const n = f32x4.sub(shifted, f32x4.splat(12582912))
  let r = f32x4.sub(x, f32x4.mul(n, f32x4.splat(0.693359375)))
  r = f32x4.add(r, f32x4.mul(n, f32x4.splat(2.12194440e-4)))
  // Source of the coefficients: expf.c of Cephes.
  let y = linear<f32>(f32x4.splat(1.9875691500e-4), r, 1.3981999507e-3)
  y = linear<f32>(y, r, 8.3334519073e-3)
  y = linear<f32>(y, r, 4.1665795894e-2)
  y = linear<f32>(y, r, 1.6666665459e-1)
  y = linear<f32>(y, r, 5.0000001201e-1)
  y = linear<f32>(f32x4.add(f32x4.mul(f32x4.mul(y, r), r), r), f32x4.splat(1), 1)
  const power = i32x4.add(i32x4.shl(shifted, 23), i32x4.splat(127 << 23))
  return v128.andnot(f32x4.mul(y, power), f32x4.lt(x, f32x4.splat(-87.3)))
}

/** exp of two doubles, with a relative error of 3e-13; 0 for x below -708. */
// @ts-ignore: decorator
@inline
export function expOfDoubles(x: v128): v128 {
  const shifted = linear<f64>(x, f64x2.splat(1.4426950408889634), 6755399441055744)
  const n = f64x2.sub(shifted, f64x2.splat(6755399441055744))
  let r = f64x2.sub(x, f64x2.mul(n, f64x2.splat(0.6931471803691238)))
  r = f64x2.sub(r, f64x2.mul(n, f64x2.splat(1.9082149292705877e-10)))
  // The Taylor series.
  let y = linear<f64>(f64x2.splat(1 / 3628800.0), r, 1 / 362880.0)
  y = linear<f64>(y, r, 1 / 40320.0)
  y = linear<f64>(y, r, 1 / 5040.0)
  y = linear<f64>(y, r, 1 / 720.0)
  y = linear<f64>(y, r, 1 / 120.0)
  y = linear<f64>(y, r, 1 / 24.0)
  y = linear<f64>(y, r, 1 / 6.0)
  y = linear<f64>(y, r, 0.5)
  y = linear<f64>(y, r, 1)
  y = linear<f64>(y, r, 1)
  const power = i64x2.shl(i64x2.add(shifted, i64x2.splat(1023)), 52)
  return v128.andnot(f64x2.mul(y, power), f64x2.lt(x, f64x2.splat(-708)))
}
