// Reads, writes and combines vectors: four floats, with T = v128, or one, with T = f32.

/** Returns one or four floats. Unused lanes are 0. */
@inline
export function read<T>(p: usize): v128 {
  return isVector<T>() ? v128.load(p) : v128.load32_zero(p)
}

@inline
export function write<T>(p: usize, x: v128): void {
  if (isVector<T>()) v128.store(p, x)
  else v128.store32_lane(p, x, 0)
}

/** Returns sum + x y. Rounds once with relaxed SIMD, otherwise twice. */
@inline
export function addProduct(sum: v128, x: v128, y: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_madd(x, y, sum)
  return f32x4.add(sum, f32x4.mul(x, y))
}

/** out += x for floats or 32-bit integers */
@inline
export function add<T>(out: usize, x: usize, bytes: usize): void {
  let at: usize = 0
  for (; at + 16 <= bytes; at += 16) {
    v128.store(out + at, v128.add<T>(v128.load(out + at), v128.load(x + at)))
  }
  for (; at < bytes; at += 4) store<T>(out + at, <T>(load<T>(out + at) + load<T>(x + at)))
}

/** The first two values as doubles. */
@inline
export function low(x: v128): v128 {
  return f64x2.promote_low_f32x4(x)
}

/** The last two values as doubles. */
@inline
export function high(x: v128): v128 {
  return f64x2.promote_low_f32x4(v128.shuffle<f32>(x, x, 2, 3, 2, 3))
}

/** The first two values at an address as doubles. Takes one instruction, unlike `read` and `low`. */
@inline
export function lowAt<T>(p: usize): v128 {
  return low(isVector<T>() ? v128.load64_zero(p) : v128.load32_zero(p))
}

/** The next two values as doubles. */
@inline
export function highAt<T>(p: usize): v128 {
  return isVector<T>() ? low(v128.load64_zero(p, 8)) : f64x2.splat(0)
}

/** Rounds two vectors of two doubles to one vector of four floats: the inverse of `low` and `high`. */
@inline
export function join(a: v128, b: v128): v128 {
  return v128.shuffle<f32>(
    f32x4.demote_f64x2_zero(a),
    f32x4.demote_f64x2_zero(b),
    0,
    1,
    4,
    5,
  )
}

/** The largest of the floats at an address, except NaN; -Infinity if there are none. */
@inline
export function largest(x: usize, bytes: usize): f32 {
  let tops = f32x4.splat(-Infinity)
  let p: usize = 0
  for (; p + 16 <= bytes; p += 16) tops = f32x4.pmax(tops, v128.load(x + p))
  for (; p < bytes; p += 4) tops = f32x4.pmax(tops, v128.load32_splat(x + p))
  tops = f32x4.pmax(tops, v128.shuffle<f32>(tops, tops, 2, 3, 0, 1))
  return f32x4.extract_lane(f32x4.pmax(tops, v128.shuffle<f32>(tops, tops, 1, 0, 3, 2)), 0)
}

/** The sum of four floats. */
@inline
export function totalOfFour(x: v128): f32 {
  const pairs = f32x4.add(x, v128.shuffle<f32>(x, x, 2, 3, 0, 1))
  return f32x4.extract_lane(pairs, 0) + f32x4.extract_lane(pairs, 1)
}

/** The sum of two doubles. */
@inline
export function total(x: v128): f64 {
  return f64x2.extract_lane(x, 0) + f64x2.extract_lane(x, 1)
}
