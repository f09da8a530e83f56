import { exp2, LOG2_E } from './exp.as'
import { largest, read, totalOfFour, write } from './lanes.as'

/** Replaces four scores (or one) by their exponentials. Unused lanes become 0. */
@inline
function exponentials<T>(p: usize, largests: v128, scales: v128, used: v128): v128 {
  const e = v128.and(exp2(f32x4.mul(f32x4.sub(read<T>(p), largests), scales)), used)
  write<T>(p, e)
  return e
}

/** Returns a mask of the lanes of a vector that the last `bytes` bytes of a row fill. */
@inline
function lanesOf(bytes: usize): v128 {
  return i32x4.lt_u(i32x4(0, 4, 8, 12), i32x4.splat(<i32>bytes))
}

/** Replaces scores by their exponentials. Returns their sum, whose bits do not depend on `width`. */
@inline
function exponentialsOfRow(p: usize, bytes: usize, width: usize, largest: v128, scales: v128): f32 {
  let sums = f32x4.splat(0)
  let i: usize = 0
  for (; i + 16 <= bytes; i += 16) {
    sums = f32x4.add(sums, exponentials<v128>(p + i, largest, scales, i32x4.splat(-1)))
  }
  if (i < bytes && i + 16 <= width) {
    sums = f32x4.add(sums, exponentials<v128>(p + i, largest, scales, lanesOf(bytes - i)))
  } else {
    let last = f32x4.splat(0)
    for (let end = bytes; end > i; end -= 4) {
      const e = exponentials<f32>(p + end - 4, largest, scales, i32x4(-1, 0, 0, 0))
      last = v128.shuffle<f32>(e, last, 0, 4, 5, 6)
    }
    sums = f32x4.add(sums, last)
  }
  return totalOfFour(sums)
}

@inline
function scaleRow(p: usize, bytes: usize, width: usize, factors: v128): void {
  let i: usize = 0
  for (; i + 16 <= bytes; i += 16) v128.store(p + i, f32x4.mul(v128.load(p + i), factors))
  if (i < bytes && i + 16 <= width) {
    const scaled = f32x4.mul(v128.load(p + i), factors)
    v128.store(p + i, v128.and(scaled, lanesOf(bytes - i)))
    i += 16
  } else for (; i < bytes; i += 4) write<f32>(p + i, f32x4.mul(read<f32>(p + i), factors))
  for (; i + 16 <= width; i += 16) v128.store(p + i, f32x4.splat(0))
  for (; i < width; i += 4) store<f32>(p + i, 0)
}

/**
 * Replaces scores by probabilities: p = softmax(scale p) for each row. Row i has `visible` + i scores, at
 * most `columns`; the other columns become 0.
 *
 * @param stride - the bytes between rows of p
 * @param stats - [rows, 2]: the largest score of each row, and 1 / (sum of the exponentials)
 * @param known - whether to read `stats`, from a call with the same scores, instead of writing them
 */
export function softmax_rows(
  p: usize,
  rows: usize,
  columns: usize,
  stride: usize,
  visible: usize,
  scale: f32,
  stats: usize,
  known: bool,
): void {
  const scales = f32x4.splat(scale * LOG2_E)
  const width = columns << 2
  // Use separate loops, so that the operations on a row do not wait for the operations on the previous row.
  if (!known) {
    for (let row: usize = 0; row < rows; row++) {
      const bytes = min(visible + row, columns) << 2
      store<f32>(stats + (row << 3), largest(p + row * stride, bytes))
    }
  }
  for (let row: usize = 0; row < rows; row++) {
    const bytes = min(visible + row, columns) << 2
    const at = stats + (row << 3)
    const largests = v128.load32_splat(at)
    const sum = exponentialsOfRow(p + row * stride, bytes, width, largests, scales)
    if (!known) store<f32>(at, 1 / sum, 4)
  }
  for (let row: usize = 0; row < rows; row++) {
    const bytes = min(visible + row, columns) << 2
    scaleRow(p + row * stride, bytes, width, v128.load32_splat(stats + (row << 3), 4))
  }
}

/** d = scale p (d - sum of p d) for each row: the gradients of scores. Strides are in bytes. */
export function softmax_gradient(
  d: usize,
  p: usize,
  rows: usize,
  columns: usize,
  dStride: usize,
  pStride: usize,
  scale: f32,
): void {
  const bytes = columns << 2
  const quads = bytes & ~15
  const scales = f32x4.splat(scale)
  for (let row = rows; row > 0; row--) {
    let sums = f32x4.splat(0)
    let i: usize = 0
    for (; i < quads; i += 16) {
      sums = f32x4.add(sums, f32x4.mul(v128.load(p + i), v128.load(d + i)))
    }
    let sum = totalOfFour(sums)
    for (; i < bytes; i += 4) sum += load<f32>(p + i) * load<f32>(d + i)
    const all = f32x4.splat(sum)
    for (i = 0; i < quads; i += 16) {
      const slope = f32x4.mul(v128.load(p + i), f32x4.sub(v128.load(d + i), all))
      v128.store(d + i, f32x4.mul(slope, scales))
    }
    for (; i < bytes; i += 4) store<f32>(d + i, load<f32>(p + i) * (load<f32>(d + i) - sum) * scale)
    d += dStride
    p += pStride
  }
}

/**
 * Attention of one position to the first `count` positions of a cache.
 *
 * @param row - the queries of all heads, `width` values
 * @param cache - the keys and then the values of all heads for each position
 * @param scores - memory for count + 2 values
 * @param size - the number of values of each head
 */
export function attend_cached(
  out: usize,
  row: usize,
  cache: usize,
  scores: usize,
  count: usize,
  width: usize,
  size: usize,
  scale: f32,
): void {
  const bytes = size << 2
  const stride = width << 3
  for (let head: usize = 0; head < width << 2; head += bytes) {
    for (let j: usize = 0; j < count; j++) {
      store<f32>(scores + (j << 2), dot(row + head, cache + j * stride + head, bytes))
    }
    softmax_rows(scores, 1, count, 0, count, scale, scores + (count << 2), false)
    const values = cache + (width << 2) + head
    let i: usize = 0
    for (; i + 64 <= bytes; i += 64) weighLine(out + head + i, scores, count, values + i, stride)
    for (; i + 16 <= bytes; i += 16) weigh<v128>(out + head + i, scores, count, values + i, stride)
    for (; i < bytes; i += 4) weigh<f32>(out + head + i, scores, count, values + i, stride)
  }
}

@inline
function dot(x: usize, y: usize, bytes: usize): f32 {
  let sums = f32x4.splat(0)
  let i: usize = 0
  for (; i + 16 <= bytes; i += 16) {
    sums = f32x4.add(sums, f32x4.mul(v128.load(x + i), v128.load(y + i)))
  }
  for (; i < bytes; i += 4) {
    sums = f32x4.add(sums, f32x4.mul(read<f32>(x + i), read<f32>(y + i)))
  }
  return totalOfFour(sums)
}

/** Like `weigh`, for the 16 columns of a cache line. */
@inline
function weighLine(out: usize, p: usize, count: usize, values: usize, stride: usize): void {
  let a = f32x4.splat(0)
  let b = a
  let c = a
  let d = a
  for (let j: usize = 0; j < count; j++) {
    const weights = v128.load32_splat(p + (j << 2))
    a = f32x4.add(a, f32x4.mul(weights, v128.load(values)))
    b = f32x4.add(b, f32x4.mul(weights, v128.load(values, 16)))
    c = f32x4.add(c, f32x4.mul(weights, v128.load(values, 32)))
    d = f32x4.add(d, f32x4.mul(weights, v128.load(values, 48)))
    values += stride
  }
  v128.store(out, a)
  v128.store(out, b, 16)
  v128.store(out, c, 32)
  v128.store(out, d, 48)
}

/** Sums one or four columns of values, weighted by the probabilities p of their rows. */
@inline
function weigh<T>(out: usize, p: usize, count: usize, values: usize, stride: usize): void {
  let sums = f32x4.splat(0)
  for (let j: usize = 0; j < count; j++) {
    const weights = v128.load32_splat(p + (j << 2))
    sums = f32x4.add(sums, f32x4.mul(weights, read<T>(values + j * stride)))
  }
  write<T>(out, sums)
}
