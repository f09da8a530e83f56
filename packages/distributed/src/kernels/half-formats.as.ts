// Four 16-bit floats, each in the low half of a 32-bit lane, to float32 and back. `format` is a
// constant at every call: 0 for float16 (5 bits of exponent, 10 of mantissa), 1 for bfloat16
// (8 and 7, the upper half of a float32).

// @ts-ignore: decorator
@inline
export function widen(format: i32, bits: v128): v128 {
  if (format == 1) return i32x4.shl(bits, 16)
  const magnitude = v128.and(bits, i32x4.splat(0x7fff))
  const sign = i32x4.shl(v128.xor(bits, magnitude), 16)
  const shifted = i32x4.shl(magnitude, 13)
  // The exponents of the two formats begin 127 - 15 apart.
  const normal = i32x4.add(shifted, i32x4.splat((127 - 15) << 23))
  // Subnormal: with the next exponent it is 2^-14 too much. Numbers that are subnormal in float32
  // too would be right after one multiplication, but a hundred times slower.
  const isSubnormal = i32x4.lt_s(magnitude, i32x4.splat(0x0400))
  const above = i32x4.add(shifted, i32x4.splat((127 - 14) << 23))
  const subnormal = f32x4.sub(above, i32x4.splat((127 - 14) << 23))
  const finite = v128.bitselect(subnormal, normal, isSubnormal)
  // Infinities and NaN get the largest exponent.
  const isSpecial = i32x4.gt_s(magnitude, i32x4.splat(0x7bff))
  return v128.or(v128.or(finite, sign), v128.and(isSpecial, i32x4.splat(0x7f800000)))
}

/** Rounds to nearest, ties to even; NaN of any kind becomes one quiet NaN. */
// @ts-ignore: decorator
@inline
export function narrow(format: i32, value: v128): v128 {
  const isNaN = f32x4.ne(value, value)
  if (format == 1) {
    const isOdd = v128.and(i32x4.shr_u(value, 16), i32x4.splat(1))
    const rounded = i32x4.add(i32x4.add(value, i32x4.splat(0x7fff)), isOdd)
    return v128.bitselect(i32x4.splat(0x7fc0), i32x4.shr_u(rounded, 16), isNaN)
  }
  const magnitude = v128.and(value, i32x4.splat(0x7fffffff))
  const sign = i32x4.shr_u(v128.xor(value, magnitude), 16)
  // Normal: the bits that are cut off round the others up, with a carry into the exponent.
  const isOdd = v128.and(i32x4.shr_u(magnitude, 13), i32x4.splat(1))
  const rebased = i32x4.add(magnitude, i32x4.splat((15 - 127) * (1 << 23) + 0xfff))
  const normal = i32x4.shr_u(i32x4.add(rebased, isOdd), 13)
  // Below 2^-14: adding 1/2 leaves multiples of 2^-24, the unit of subnormals, as the low bits.
  const subnormal = i32x4.sub(f32x4.add(magnitude, f32x4.splat(0.5)), i32x4.splat(0x3f000000))
  const isSmall = i32x4.lt_s(magnitude, i32x4.splat(113 << 23))
  const isLarge = i32x4.gt_s(magnitude, i32x4.splat((143 << 23) - 1))
  let result = v128.bitselect(subnormal, normal, isSmall)
  result = v128.bitselect(i32x4.splat(0x7c00), result, isLarge)
  return v128.bitselect(i32x4.splat(0x7e00), v128.or(result, sign), isNaN)
}
