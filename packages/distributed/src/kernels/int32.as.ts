import { combine, MAX, MIN, PRODUCT, SUM } from './elementwise.as'

export function int32_sum(out: usize, a: usize, b: usize, count: usize): void {
  combine<i32>(SUM, out, a, b, count)
}

export function int32_product(out: usize, a: usize, b: usize, count: usize): void {
  combine<i32>(PRODUCT, out, a, b, count)
}

export function int32_min(out: usize, a: usize, b: usize, count: usize): void {
  combine<i32>(MIN, out, a, b, count)
}

export function int32_max(out: usize, a: usize, b: usize, count: usize): void {
  combine<i32>(MAX, out, a, b, count)
}

// 1/n is rounded, so 49 * (1/49) falls short of 1 and would be cut to 0. This much more makes
// quotients of 32-bit integers exact: those that are no integer stay 2^-32 below the next one.
const NUDGE: f64 = 1.0 + 1.0 / <f64>(1 << 30) / <f64>(1 << 18)

/** x[i] = x[i] * factor, cut toward zero; exact when factor is 1/n. */
export function int32_scale(at: usize, count: usize, factor: f64): void {
  const nudged = factor * NUDGE
  for (let left = count; left > 0; left--) {
    store<i32>(at, <i32>(<f64>load<i32>(at) * nudged))
    at += sizeof<i32>()
  }
}
