import { combineVectors, MAX, MIN, PRODUCT, SUM } from './vectors.as'
import { narrow, widen } from './half-formats.as'

// 16-bit floats: eight at a time are widened to two vectors of float32, combined, and rounded once.

// @ts-ignore: decorator
@inline
function combineHalves(format: i32, op: i32, a: v128, b: v128): v128 {
  const low = combineVectors<f32>(
    op,
    widen(format, i32x4.extend_low_i16x8_u(a)),
    widen(format, i32x4.extend_low_i16x8_u(b)),
  )
  const high = combineVectors<f32>(
    op,
    widen(format, i32x4.extend_high_i16x8_u(a)),
    widen(format, i32x4.extend_high_i16x8_u(b)),
  )
  return i16x8.narrow_i32x4_u(narrow(format, low), narrow(format, high))
}

// @ts-ignore: decorator
@inline
function combine(format: i32, op: i32, out: usize, a: usize, b: usize, count: usize): void {
  let left = count
  for (; left >= 8; left -= 8) {
    v128.store(out, combineHalves(format, op, v128.load(a), v128.load(b)))
    out += 16
    a += 16
    b += 16
  }
  for (; left > 0; left--) {
    const one = combineHalves(format, op, v128.load_splat<u16>(a), v128.load_splat<u16>(b))
    v128.store_lane<u16>(out, one, 0)
    out += 2
    a += 2
    b += 2
  }
}

// @ts-ignore: decorator
@inline
function combineAll(format: i32, op: i32, out: usize, a: usize, b: usize, count: usize): void {
  if (op == PRODUCT) combine(format, PRODUCT, out, a, b, count)
  else if (op == MIN) combine(format, MIN, out, a, b, count)
  else if (op == MAX) combine(format, MAX, out, a, b, count)
  else combine(format, SUM, out, a, b, count)
}

// @ts-ignore: decorator
@inline
function scaleHalves(format: i32, x: v128, factors: v128): v128 {
  const low = f32x4.mul(widen(format, i32x4.extend_low_i16x8_u(x)), factors)
  const high = f32x4.mul(widen(format, i32x4.extend_high_i16x8_u(x)), factors)
  return i16x8.narrow_i32x4_u(narrow(format, low), narrow(format, high))
}

// @ts-ignore: decorator
@inline
function scale(format: i32, at: usize, count: usize, factor: f64): void {
  const factors = f32x4.splat(<f32>factor)
  let left = count
  for (; left >= 8; left -= 8) {
    v128.store(at, scaleHalves(format, v128.load(at), factors))
    at += 16
  }
  for (; left > 0; left--) {
    v128.store_lane<u16>(at, scaleHalves(format, v128.load_splat<u16>(at), factors), 0)
    at += 2
  }
}

const FLOAT16: i32 = 0
const BFLOAT16: i32 = 1

export function float16_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combineAll(FLOAT16, op, out, a, b, count)
}

export function bfloat16_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combineAll(BFLOAT16, op, out, a, b, count)
}

export function float16_scale(at: usize, count: usize, factor: f64): void {
  scale(FLOAT16, at, count, factor)
}

export function bfloat16_scale(at: usize, count: usize, factor: f64): void {
  scale(BFLOAT16, at, count, factor)
}
