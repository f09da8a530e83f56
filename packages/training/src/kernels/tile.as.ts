import { addProduct, read } from './lanes.as'

/** Operations on the sums of a tile: RELU applies a ReLU, MASK the gradient of a ReLU, ADD adds `other`. */
export const RELU: i32 = 1
export const MASK: i32 = 2
export const ADD: i32 = 3

/** @param other - the output of the ReLU for MASK, the values to add for ADD */
@inline
export function finish<T>(x: v128, finisher: i32, other: usize): v128 {
  if (finisher == ADD) return f32x4.add(read<T>(other), x)
  // RELU clears lanes where x is 0 or less. MASK clears lanes where the output of the ReLU is 0 or less.
  if (finisher) return v128.andnot(x, f32x4.le(finisher == MASK ? read<T>(other) : x, f32x4.splat(0)))
  return x
}

/**
 * Computes c = finish(c + a b) for a tile of 4 x 8 values. `a` is a panel [depth][4], `b` a panel
 * [depth][8]. In the first block of the inner dimension, `start` holds 8 initial values for each row of
 * c. Sums are computed in the order of the inner dimension. Without relaxed SIMD, each product and each
 * sum is rounded, so the bits do not depend on the blocking, and equal those of XNNPACK.
 *
 * @param stride - the bytes between the rows of `c` and of `other`
 * @param depth - at least 1
 */
export function multiplyTile(
  finisher: i32,
  c: usize,
  stride: usize,
  a: usize,
  b: usize,
  depth: usize,
  start: usize,
  other: usize,
): void {
  const c1 = c + stride
  const c2 = c1 + stride
  const c3 = c2 + stride
  let s0 = v128.load(start ? start : c)
  let t0 = v128.load(start ? start : c, 16)
  let s1 = v128.load(start ? start : c1)
  let t1 = v128.load(start ? start : c1, 16)
  let s2 = v128.load(start ? start : c2)
  let t2 = v128.load(start ? start : c2, 16)
  let s3 = v128.load(start ? start : c3)
  let t3 = v128.load(start ? start : c3, 16)
  // Run four steps in each iteration. The branches between them keep V8 from mixing the steps, which would
  // need more registers than there are.
  while (true) {
    let left: v128, right: v128, x: v128
    left = v128.load(b)
    right = v128.load(b, 16)
    x = v128.load32_splat(a)
    s0 = addProduct(s0, x, left)
    t0 = addProduct(t0, x, right)
    x = v128.load32_splat(a, 4)
    s1 = addProduct(s1, x, left)
    t1 = addProduct(t1, x, right)
    x = v128.load32_splat(a, 8)
    s2 = addProduct(s2, x, left)
    t2 = addProduct(t2, x, right)
    x = v128.load32_splat(a, 12)
    s3 = addProduct(s3, x, left)
    t3 = addProduct(t3, x, right)
    if (depth == 1) break
    left = v128.load(b, 32)
    right = v128.load(b, 48)
    x = v128.load32_splat(a, 16)
    s0 = addProduct(s0, x, left)
    t0 = addProduct(t0, x, right)
    x = v128.load32_splat(a, 20)
    s1 = addProduct(s1, x, left)
    t1 = addProduct(t1, x, right)
    x = v128.load32_splat(a, 24)
    s2 = addProduct(s2, x, left)
    t2 = addProduct(t2, x, right)
    x = v128.load32_splat(a, 28)
    s3 = addProduct(s3, x, left)
    t3 = addProduct(t3, x, right)
    if (depth == 2) break
    left = v128.load(b, 64)
    right = v128.load(b, 80)
    x = v128.load32_splat(a, 32)
    s0 = addProduct(s0, x, left)
    t0 = addProduct(t0, x, right)
    x = v128.load32_splat(a, 36)
    s1 = addProduct(s1, x, left)
    t1 = addProduct(t1, x, right)
    x = v128.load32_splat(a, 40)
    s2 = addProduct(s2, x, left)
    t2 = addProduct(t2, x, right)
    x = v128.load32_splat(a, 44)
    s3 = addProduct(s3, x, left)
    t3 = addProduct(t3, x, right)
    if (depth == 3) break
    left = v128.load(b, 96)
    right = v128.load(b, 112)
    x = v128.load32_splat(a, 48)
    s0 = addProduct(s0, x, left)
    t0 = addProduct(t0, x, right)
    x = v128.load32_splat(a, 52)
    s1 = addProduct(s1, x, left)
    t1 = addProduct(t1, x, right)
    x = v128.load32_splat(a, 56)
    s2 = addProduct(s2, x, left)
    t2 = addProduct(t2, x, right)
    x = v128.load32_splat(a, 60)
    s3 = addProduct(s3, x, left)
    t3 = addProduct(t3, x, right)
    depth -= 4
    if (depth == 0) break
    a += 64
    b += 128
  }
  if (finisher) {
    s0 = finish<v128>(s0, finisher, other)
    t0 = finish<v128>(t0, finisher, other + 16)
    other += stride
    s1 = finish<v128>(s1, finisher, other)
    t1 = finish<v128>(t1, finisher, other + 16)
    other += stride
    s2 = finish<v128>(s2, finisher, other)
    t2 = finish<v128>(t2, finisher, other + 16)
    other += stride
    s3 = finish<v128>(s3, finisher, other)
    t3 = finish<v128>(t3, finisher, other + 16)
  }
  v128.store(c, s0)
  v128.store(c, t0, 16)
  v128.store(c1, s1)
  v128.store(c1, t1, 16)
  v128.store(c2, s2)
  v128.store(c2, t2, 16)
  v128.store(c3, s3)
  v128.store(c3, t3, 16)
}
