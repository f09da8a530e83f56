// Passes over single values. `count` may be any number.
import { exp2, LOG2_E } from './exp.as'
import { highAt, lowAt, read, total, write } from './lanes.as'

/** The bytes per block of both passes of `gate`, so that they stay in the first-level cache. */
const BLOCK: usize = 4096

/** x^2, with a limit that keeps it finite: 0 times an infinite square is NaN. */
@inline
function boundedSquare(x: v128): v128 {
  return f32x4.pmin(f32x4.mul(x, x), f32x4.splat(1e36))
}

/** x plus the bias at an address, or x */
@inline
function biased<T>(x: usize, bias: usize, p: usize): v128 {
  const v = read<T>(x + p)
  return bias ? f32x4.add(v, read<T>(bias + p)) : v
}

/** Returns exp(-|linear x + cubic x^3|), which never overflows. */
@inline
function decayOf(x: v128, linear: f32, cubic: f32): v128 {
  const factors = f32x4.mul(boundedSquare(x), f32x4.splat(cubic * LOG2_E))
  const inner = f32x4.mul(x, f32x4.add(factors, f32x4.splat(linear * LOG2_E)))
  return exp2(v128.or(inner, i32x4.splat(1 << 31)))
}

/** @param slope - contains the result of `decayOf` */
@inline
function gateAt<T>(out: usize, slope: usize, v: v128, linear: f32, cubic: f32): void {
  const e = read<T>(slope)
  // sigmoid(z) = 1 / (1 + exp(-z)) = exp(z) / (1 + exp(z))
  const right = f32x4.div(f32x4.splat(1), f32x4.add(f32x4.splat(1), e))
  const left = f32x4.mul(e, right)
  const y = v128.bitselect(left, right, i32x4.shr_s(v, 31))
  const cubed = f32x4.mul(boundedSquare(v), f32x4.splat(3 * cubic))
  const steep = f32x4.add(cubed, f32x4.splat(linear))
  const bend = f32x4.mul(steep, f32x4.mul(left, right))
  write<T>(slope, f32x4.add(y, f32x4.mul(v, bend)))
  write<T>(out, f32x4.mul(v, y))
}

/**
 * out = z sigmoid(linear z + cubic z^3) for z = x + bias, and `slope` = its derivative. The factors are at
 * least 0. Two passes take half the time of one, because their chains of dependent operations are shorter.
 *
 * @param out - [rows, columns]; may be `x`
 * @param bias - the address of `columns` values, or 0
 */
export function gate(
  out: usize,
  slope: usize,
  x: usize,
  rows: usize,
  columns: usize,
  bias: usize,
  linear: f32,
  cubic: f32,
): void {
  const bytes = columns << 2
  for (; rows > 0; rows--) {
    for (let start: usize = 0; start < bytes; start += BLOCK) {
      const end = min(bytes, start + BLOCK)
      let p = start
      for (; p + 16 <= end; p += 16) {
        v128.store(slope + p, decayOf(biased<v128>(x, bias, p), linear, cubic))
      }
      for (; p < end; p += 4) {
        write<f32>(slope + p, decayOf(biased<f32>(x, bias, p), linear, cubic))
      }
      for (p = start; p + 16 <= end; p += 16) {
        gateAt<v128>(out + p, slope + p, biased<v128>(x, bias, p), linear, cubic)
      }
      for (; p < end; p += 4) {
        gateAt<f32>(out + p, slope + p, biased<f32>(x, bias, p), linear, cubic)
      }
    }
    out += bytes
    slope += bytes
    x += bytes
  }
}

/** out = x y; `out` may be `x` or `y`. */
export function multiply(out: usize, x: usize, y: usize, count: usize): void {
  const bytes = count << 2
  let p: usize = 0
  for (; p + 16 <= bytes; p += 16) {
    v128.store(out + p, f32x4.mul(v128.load(x + p), v128.load(y + p)))
  }
  for (; p < bytes; p += 4) store<f32>(out + p, load<f32>(x + p) * load<f32>(y + p))
}

/** out = factor x; `out` may be `x`. */
export function scale(out: usize, x: usize, count: usize, factor: f32): void {
  const bytes = count << 2
  const factors = f32x4.splat(factor)
  let p: usize = 0
  for (; p + 16 <= bytes; p += 16) v128.store(out + p, f32x4.mul(v128.load(x + p), factors))
  for (; p < bytes; p += 4) store<f32>(out + p, load<f32>(x + p) * factor)
}

/** Sums squares in doubles, with the bits of the sum in JavaScript (clip.ts). */
export function sum_of_squares(x: usize, count: usize): f64 {
  const bytes = count << 2
  let a = f64x2.splat(0)
  let b = f64x2.splat(0)
  let p: usize = 0
  for (; p + 16 <= bytes; p += 16) {
    const v = lowAt<v128>(x + p)
    const w = highAt<v128>(x + p)
    a = f64x2.add(a, f64x2.mul(v, v))
    b = f64x2.add(b, f64x2.mul(w, w))
  }
  for (; p < bytes; p += 4) {
    const v = lowAt<f32>(x + p)
    a = f64x2.add(a, f64x2.mul(v, v))
  }
  return total(a) + f64x2.extract_lane(b, 0) + f64x2.extract_lane(b, 1)
}
