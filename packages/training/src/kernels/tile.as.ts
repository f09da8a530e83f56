import { read } from './lanes.as'

/** Operations on the sums of a tile: RELU applies a ReLU, MASK the gradient of a ReLU. */
export const RELU: i32 = 1
export const MASK: i32 = 2

// @ts-ignore: decorator
@inline
export function finish<T>(x: v128, finisher: i32, mask: usize): v128 {
  if (finisher == RELU) return f32x4.max(x, f32x4.splat(0))
  // The gradient is 0 where the mask (the output of the ReLU) is 0.
  if (finisher == MASK) return v128.andnot(x, f32x4.le(read<T>(mask), f32x4.splat(0)))
  return x
}

/** sum + x y, rounded once with relaxed SIMD, else twice. */
// @ts-ignore: decorator
@inline
export function addProduct(sum: v128, x: v128, y: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_madd(x, y, sum)
  return f32x4.add(sum, f32x4.mul(x, y))
}

/**
 * Computes c = finish(c + a b) for a tile of 4 x 8 values. `a` is a panel [depth][4], `b` a panel
 * [depth][8]. In the first block of the inner dimension, `start` holds 8 initial values for each row of
 * c. Sums are computed in the order of the inner dimension. Without relaxed SIMD, each product and each
 * sum is rounded, so the bits do not depend on the blocking, and equal those of XNNPACK.
 *
 * @param stride - the bytes between the rows of `c` and of `mask`
 */
// @ts-ignore: decorator
@inline
function multiplyTile(
  finisher: i32,
  c: usize,
  stride: usize,
  a: usize,
  b: usize,
  depth: usize,
  start: usize,
  mask: usize,
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
  for (let k = depth; k > 0; k--) {
    const left = v128.load(b)
    const right = v128.load(b, 16)
    const x0 = v128.load32_splat(a)
    s0 = addProduct(s0, x0, left)
    t0 = addProduct(t0, x0, right)
    const x1 = v128.load32_splat(a, 4)
    s1 = addProduct(s1, x1, left)
    t1 = addProduct(t1, x1, right)
    const x2 = v128.load32_splat(a, 8)
    s2 = addProduct(s2, x2, left)
    t2 = addProduct(t2, x2, right)
    const x3 = v128.load32_splat(a, 12)
    s3 = addProduct(s3, x3, left)
    t3 = addProduct(t3, x3, right)
    a += 16
    b += 32
  }
  v128.store(c, finish<v128>(s0, finisher, mask))
  v128.store(c, finish<v128>(t0, finisher, mask + 16), 16)
  mask += stride
  v128.store(c1, finish<v128>(s1, finisher, mask))
  v128.store(c1, finish<v128>(t1, finisher, mask + 16), 16)
  mask += stride
  v128.store(c2, finish<v128>(s2, finisher, mask))
  v128.store(c2, finish<v128>(t2, finisher, mask + 16), 16)
  mask += stride
  v128.store(c3, finish<v128>(s3, finisher, mask))
  v128.store(c3, finish<v128>(t3, finisher, mask + 16), 16)
}

export function plainTile(
  c: usize,
  stride: usize,
  a: usize,
  b: usize,
  depth: usize,
  start: usize,
): void {
  multiplyTile(0, c, stride, a, b, depth, start, 0)
}

export function finishedTile(
  finisher: i32,
  c: usize,
  stride: usize,
  a: usize,
  b: usize,
  depth: usize,
  start: usize,
  mask: usize,
): void {
  if (finisher == RELU) multiplyTile(RELU, c, stride, a, b, depth, start, 0)
  else multiplyTile(MASK, c, stride, a, b, depth, start, mask)
}
