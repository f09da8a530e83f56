// x[i] = x[i] / divisor, cut toward zero, for the averages of integers.

// 1/n is rounded, so 49 * (1/49) falls short of 1 and would be cut to 0. This much more makes
// quotients of 32-bit integers exact: those that are no integer stay 2^-32 below the next one.
const NUDGE: f64 = 1.0 + 1.0 / <f64>(1 << 30) / <f64>(1 << 18)

/** Multiplies in place of dividing, which takes several times as long. */
// @ts-ignore: decorator
@inline
function divide<T>(at: usize, count: usize, divisor: f64): void {
  const factor = (1.0 / divisor) * NUDGE
  for (let left = count; left > 0; left--) {
    store<T>(at, <T>(<f64>load<T>(at) * factor))
    at += sizeof<T>()
  }
}

/** No other number type holds all 64-bit integers. */
// @ts-ignore: decorator
@inline
function divideLong<T>(at: usize, count: usize, divisor: T): void {
  for (let left = count; left > 0; left--) {
    store<T>(at, <T>(load<T>(at) / divisor))
    at += sizeof<T>()
  }
}

export function int8_divide(at: usize, count: usize, divisor: f64): void {
  divide<i8>(at, count, divisor)
}

export function uint8_divide(at: usize, count: usize, divisor: f64): void {
  divide<u8>(at, count, divisor)
}

export function int32_divide(at: usize, count: usize, divisor: f64): void {
  divide<i32>(at, count, divisor)
}

export function uint32_divide(at: usize, count: usize, divisor: f64): void {
  divide<u32>(at, count, divisor)
}

export function int64_divide(at: usize, count: usize, divisor: f64): void {
  divideLong<i64>(at, count, <i64>divisor)
}

export function uint64_divide(at: usize, count: usize, divisor: f64): void {
  divideLong<u64>(at, count, <u64>divisor)
}
