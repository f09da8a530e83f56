/**
 * exp(x) of four values, with a relative error of at most 1.7e-7. Below -87.3 and above 88.3, the result is
 * that of the bound, and of NaN it is NaN. Source: Cephes, expf.c.
 */
// @ts-ignore: decorator
@inline
export function exp(x: v128): v128 {
  const bounded = f32x4.pmin(f32x4.pmax(x, f32x4.splat(-87.3)), f32x4.splat(88.3))
  // Adding 1.5 2^23 rounds to an integer, which is then in the low bits.
  const shift = f32x4.splat(12582912)
  const shifted = f32x4.add(f32x4.mul(bounded, f32x4.splat(1.44269504)), shift)
  const n = f32x4.sub(shifted, shift)
  // Subtract n ln 2 in two parts: the first has few digits, so its product with n is exact.
  let r = f32x4.sub(bounded, f32x4.mul(n, f32x4.splat(0.693359375)))
  r = f32x4.add(r, f32x4.mul(n, f32x4.splat(2.1219444e-4)))
  let p = f32x4.splat(1.98756915e-4)
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(1.3981999507e-3))
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(8.3334519073e-3))
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(4.1665795894e-2))
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(1.6666665459e-1))
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(5.0000001201e-1))
  p = f32x4.add(f32x4.add(f32x4.mul(f32x4.mul(p, r), r), r), f32x4.splat(1))
  const power = i32x4.add(i32x4.shl(shifted, 23), i32x4.splat(127 << 23))
  return f32x4.mul(p, power)
}

// @ts-ignore: decorator
@inline
export function sumOf(x: v128): f32 {
  const pairs = f32x4.add(x, v128.shuffle<f32>(x, x, 2, 3, 0, 1))
  return f32x4.extract_lane(pairs, 0) + f32x4.extract_lane(pairs, 1)
}
