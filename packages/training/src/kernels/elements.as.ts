// Passes over single values. `count` may be any number.
import { exp2, LOG2_E, ONE } from './exp.as'
import { addProduct, highAt, lowAt, read, total, write } from './lanes.as'

/** The bytes per block of the passes of `gate`, so that they stay in the first-level cache. */
const BLOCK: usize = 4096

// Variables, as in exp.as.ts.
let SIGN: v128 = i32x4.splat(1 << 31)
let LARGEST_SQUARE: v128 = f32x4.splat(1e36)

/** x^2, with a limit that keeps it finite: 0 times an infinite square is NaN. */
@inline
function boundedSquare(x: v128): v128 {
  return f32x4.pmin(f32x4.mul(x, x), LARGEST_SQUARE)
}

/** slope = -|linear z + cubic z^3| for z = x, or for out = z = x + bias if there is a bias. */
@inline
function exponentAt<T>(
  slope: usize,
  out: usize,
  x: usize,
  bias: usize,
  linear: v128,
  cubic: v128,
): void {
  let v = read<T>(x)
  if (bias) {
    v = f32x4.add(v, read<T>(bias))
    write<T>(out, v)
  }
  const inner = f32x4.mul(v, addProduct(linear, boundedSquare(v), cubic))
  write<T>(slope, v128.or(inner, SIGN))
}

/** @param slope - contains exp(-|linear x + cubic x^3|), which never overflows */
@inline
function gateAt<T>(out: usize, slope: usize, x: usize, linear: v128, threefold: v128): void {
  const v = read<T>(x)
  const e = read<T>(slope)
  // sigmoid(z) = 1 / (1 + exp(-z)) = exp(z) / (1 + exp(z))
  const right = f32x4.div(ONE, f32x4.add(ONE, e))
  const left = f32x4.mul(e, right)
  const y = v128.bitselect(left, right, i32x4.shr_s(v, 31))
  const steep = addProduct(linear, boundedSquare(v), threefold)
  const bend = f32x4.mul(steep, f32x4.mul(left, right))
  write<T>(slope, addProduct(y, v, bend))
  write<T>(out, f32x4.mul(v, y))
}

/**
 * out = z sigmoid(linear z + cubic z^3) for z = x + bias, and `slope` = its derivative. The factors are at
 * least 0. Three passes take less time than one, because their chains of dependent operations are shorter.
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
  const linear2 = f32x4.splat(linear * LOG2_E)
  const cubic2 = f32x4.splat(cubic * LOG2_E)
  const linears = f32x4.splat(linear)
  const threefold = f32x4.splat(3 * cubic)
  for (; rows > 0; rows--) {
    const z = bias ? out : x
    for (let start: usize = 0; start < bytes; start += BLOCK) {
      const end = min(bytes, start + BLOCK)
      const whole = end & ~15
      let p = start
      for (; p < whole; p += 16) {
        exponentAt<v128>(slope + p, out + p, x + p, bias ? bias + p : 0, linear2, cubic2)
      }
      for (p = start; p < whole; p += 16) v128.store(slope + p, exp2(v128.load(slope + p)))
      for (p = start; p < whole; p += 16) {
        gateAt<v128>(out + p, slope + p, z + p, linears, threefold)
      }
      for (; p < end; p += 4) {
        exponentAt<f32>(slope + p, out + p, x + p, bias ? bias + p : 0, linear2, cubic2)
        write<f32>(slope + p, exp2(read<f32>(slope + p)))
        gateAt<f32>(out + p, slope + p, z + p, linears, threefold)
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
