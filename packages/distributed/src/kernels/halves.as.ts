import { combineVectors } from './vectors.as'

// The type u16 stands for float16 (5 bits of exponent, 10 of mantissa), and i16 for bfloat16 (8 and
// 7, the upper half of a float32): no dtype has 16-bit integers.

// Convert four 16-bit floats, each in the low half of a 32-bit lane, to float32 and back.

@inline
function widen<T>(bits: v128): v128 {
  if (isSigned<T>()) return i32x4.shl(bits, 16)
  const magnitude = v128.and(bits, i32x4.splat(0x7fff))
  const sign = i32x4.shl(v128.xor(bits, magnitude), 16)
  const shifted = i32x4.shl(magnitude, 13)
  // The exponent biases of float16 and float32 differ by 127 - 15.
  const normal = i32x4.add(shifted, i32x4.splat((127 - 15) << 23))
  // A subnormal gets the smallest normal exponent, which makes it 2^-14 too large. Subtract that.
  // Multiplying a float32 subnormal would also be correct, but a hundred times slower.
  const isSubnormal = i32x4.lt_s(magnitude, i32x4.splat(0x0400))
  const above = i32x4.add(shifted, i32x4.splat((127 - 14) << 23))
  const subnormal = f32x4.sub(above, i32x4.splat((127 - 14) << 23))
  const finite = v128.bitselect(subnormal, normal, isSubnormal)
  // Infinities and NaN get the largest exponent.
  const isSpecial = i32x4.gt_s(magnitude, i32x4.splat(0x7bff))
  return v128.or(v128.or(finite, sign), v128.and(isSpecial, i32x4.splat(0x7f800000)))
}

/** Rounds to nearest, ties to even. Every NaN becomes the same quiet NaN. */
@inline
function narrow<T>(value: v128): v128 {
  const isNaN = f32x4.ne(value, value)
  if (isSigned<T>()) {
    const isOdd = v128.and(i32x4.shr_u(value, 16), i32x4.splat(1))
    const rounded = i32x4.add(i32x4.add(value, i32x4.splat(0x7fff)), isOdd)
    return v128.bitselect(i32x4.splat(0x7fc0), i32x4.shr_u(rounded, 16), isNaN)
  }
  const magnitude = v128.and(value, i32x4.splat(0x7fffffff))
  const sign = i32x4.shr_u(v128.xor(value, magnitude), 16)
  // A normal number: round by the dropped bits, with a carry into the exponent.
  const isOdd = v128.and(i32x4.shr_u(magnitude, 13), i32x4.splat(1))
  const rebased = i32x4.add(magnitude, i32x4.splat((15 - 127) * (1 << 23) + 0xfff))
  const normal = i32x4.shr_u(i32x4.add(rebased, isOdd), 13)
  // A number below 2^-14. After adding 1/2, the low bits of the sum are the number in units of
  // 2^-24, as in a subnormal float16.
  const subnormal = i32x4.sub(f32x4.add(magnitude, f32x4.splat(0.5)), i32x4.splat(0x3f000000))
  const isSmall = i32x4.lt_s(magnitude, i32x4.splat(113 << 23))
  const isLarge = i32x4.gt_s(magnitude, i32x4.splat((143 << 23) - 1))
  let result = v128.bitselect(subnormal, normal, isSmall)
  result = v128.bitselect(i32x4.splat(0x7c00), result, isLarge)
  return v128.bitselect(i32x4.splat(0x7e00), v128.or(result, sign), isNaN)
}

// Widen eight 16-bit floats to two vectors of float32, combine the vectors, and round once.

@inline
export function combineHalves<T>(op: i32, a: v128, b: v128): v128 {
  const low = combineVectors<f32>(
    op,
    widen<T>(i32x4.extend_low_i16x8_u(a)),
    widen<T>(i32x4.extend_low_i16x8_u(b)),
  )
  const high = combineVectors<f32>(
    op,
    widen<T>(i32x4.extend_high_i16x8_u(a)),
    widen<T>(i32x4.extend_high_i16x8_u(b)),
  )
  return i16x8.narrow_i32x4_u(narrow<T>(low), narrow<T>(high))
}

@inline
export function scaleHalves<T>(x: v128, factors: v128): v128 {
  const low = f32x4.mul(widen<T>(i32x4.extend_low_i16x8_u(x)), factors)
  const high = f32x4.mul(widen<T>(i32x4.extend_high_i16x8_u(x)), factors)
  return i16x8.narrow_i32x4_u(narrow<T>(low), narrow<T>(high))
}

@inline
function narrowAll<T>(out: usize, from: usize, count: usize, factor: f64): void {
  const factors = f32x4.splat(<f32>factor)
  let left = count
  for (; left >= 8; left -= 8) {
    const low = narrow<T>(f32x4.mul(v128.load(from), factors))
    const high = narrow<T>(f32x4.mul(v128.load(from, 16), factors))
    v128.store(out, i16x8.narrow_i32x4_u(low, high))
    out += 16
    from += 32
  }
  for (; left > 0; left--) {
    const one = narrow<T>(f32x4.mul(v128.load_splat<u32>(from), factors))
    v128.store_lane<u16>(out, one, 0)
    out += 2
    from += 4
  }
}

@inline
function widenAll<T>(out: usize, from: usize, count: usize): void {
  let left = count
  for (; left >= 8; left -= 8) {
    const halves = v128.load(from)
    v128.store(out, widen<T>(i32x4.extend_low_i16x8_u(halves)))
    v128.store(out, widen<T>(i32x4.extend_high_i16x8_u(halves)), 16)
    out += 32
    from += 16
  }
  for (; left > 0; left--) {
    const one = widen<T>(i32x4.extend_low_i16x8_u(v128.load_splat<u16>(from)))
    v128.store_lane<u32>(out, one, 0)
    out += 4
    from += 2
  }
}

export function float16_narrow(out: usize, from: usize, count: usize, factor: f64): void {
  narrowAll<u16>(out, from, count, factor)
}

export function bfloat16_narrow(out: usize, from: usize, count: usize, factor: f64): void {
  narrowAll<i16>(out, from, count, factor)
}

export function float16_widen(out: usize, from: usize, count: usize): void {
  widenAll<u16>(out, from, count)
}

export function bfloat16_widen(out: usize, from: usize, count: usize): void {
  widenAll<i16>(out, from, count)
}
