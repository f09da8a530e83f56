// Passes over single values. `count` may be any number.
import { exp } from './exp.as'
import { high, low, read, total, write } from './lanes.as'

// @ts-ignore: decorator
@inline
function gateAt<T>(out: usize, slope: usize, x: usize, linear: f32, cubic: f32): void {
  const v = read<T>(x)
  // If the factor is 0, skip the product: 0 times an infinite square is NaN.
  const square = cubic ? f32x4.mul(f32x4.mul(v, v), f32x4.splat(cubic)) : f32x4.splat(0)
  const inner = f32x4.mul(v, f32x4.add(square, f32x4.splat(linear)))
  // sigmoid(z) = 1 / (1 + exp(-z)) = exp(z) / (1 + exp(z)), and exp(-|z|) never overflows.
  const e = exp(f32x4.neg(f32x4.abs(inner)))
  const factor = f32x4.div(f32x4.splat(1), f32x4.add(f32x4.splat(1), e))
  const isNegative = f32x4.lt(inner, f32x4.splat(0))
  const y = f32x4.mul(v128.bitselect(e, f32x4.splat(1), isNegative), factor)
  const bend = f32x4.mul(e, f32x4.mul(factor, factor))
  const steep = f32x4.add(f32x4.mul(square, f32x4.splat(3)), f32x4.splat(linear))
  write<T>(slope, f32x4.add(y, f32x4.mul(v, f32x4.mul(steep, bend))))
  write<T>(out, f32x4.mul(v, y))
}

/** out = x sigmoid(linear x + cubic x^3), and `slope` = its derivative. */
export function gate(
  out: usize,
  slope: usize,
  x: usize,
  count: usize,
  linear: f32,
  cubic: f32,
): void {
  const bytes = count << 2
  let p: usize = 0
  for (; p + 16 <= bytes; p += 16) gateAt<v128>(out + p, slope + p, x + p, linear, cubic)
  for (; p < bytes; p += 4) gateAt<f32>(out + p, slope + p, x + p, linear, cubic)
}

/** out = factor x; `out` may be `x`. */
export function scale(out: usize, x: usize, count: usize, factor: f32): void {
  const bytes = count << 2
  const factors = f32x4.splat(factor)
  let p: usize = 0
  for (; p + 16 <= bytes; p += 16) v128.store(out + p, f32x4.mul(v128.load(x + p), factors))
  for (; p < bytes; p += 4) store<f32>(out + p, load<f32>(x + p) * factor)
}

/** Has the bits of the sum in JavaScript (clip.ts). */
export function sum_of_squares(x: usize, count: usize): f64 {
  const bytes = count << 2
  let a = f64x2.splat(0)
  let b = f64x2.splat(0)
  let p: usize = 0
  for (; p + 16 <= bytes; p += 16) {
    const v = v128.load(x + p)
    a = f64x2.add(a, f64x2.mul(low(v), low(v)))
    b = f64x2.add(b, f64x2.mul(high(v), high(v)))
  }
  for (; p < bytes; p += 4) {
    const v = low(v128.load32_zero(x + p))
    a = f64x2.add(a, f64x2.mul(v, v))
  }
  return total(a) + f64x2.extract_lane(b, 0) + f64x2.extract_lane(b, 1)
}
