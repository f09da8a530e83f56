import { high, join, low } from './lanes.as'
import { finish, MASK, RELU } from './tile.as'

/**
 * Adds `start` to every row of c [rows, columns], and applies the finisher: what `product` does to its
 * sums. `mask` has the shape of c.
 */
export function finish_rows(
  c: usize,
  rows: usize,
  columns: usize,
  start: usize,
  finisher: i32,
  mask: usize,
): void {
  const bytes = columns << 2
  const quads = bytes & ~15
  for (let row = rows; row > 0; row--) {
    let i: usize = 0
    for (; i < quads; i += 16) {
      let x = v128.load(c + i)
      if (start) x = f32x4.add(x, v128.load(start + i))
      v128.store(c + i, finish(x, finisher, mask + i))
    }
    for (; i < bytes; i += 4) {
      let x = load<f32>(c + i)
      if (start) x += load<f32>(start + i)
      if (finisher == RELU) x = max<f32>(x, 0)
      else if (finisher == MASK && load<f32>(mask + i) <= 0) x = 0
      store<f32>(c + i, x)
    }
    c += bytes
    mask += bytes
  }
}

/** Sums the rows of x: out[j] = sum over i of x[i, j], in double precision and in row order. */
export function sum_rows(out: usize, x: usize, rows: usize, columns: usize): void {
  const stride = columns << 2
  const end = x + rows * stride
  let column: usize = 0
  // As many sums as fit the registers.
  for (; column + 16 <= columns; column += 16) {
    let a = f64x2.splat(0)
    let b = a
    let c = a
    let d = a
    let e = a
    let f = a
    let g = a
    let h = a
    for (let p = x + (column << 2); p < end; p += stride) {
      const s = v128.load(p)
      a = f64x2.add(a, low(s))
      b = f64x2.add(b, high(s))
      const t = v128.load(p, 16)
      c = f64x2.add(c, low(t))
      d = f64x2.add(d, high(t))
      const u = v128.load(p, 32)
      e = f64x2.add(e, low(u))
      f = f64x2.add(f, high(u))
      const v = v128.load(p, 48)
      g = f64x2.add(g, low(v))
      h = f64x2.add(h, high(v))
    }
    const to = out + (column << 2)
    v128.store(to, join(a, b))
    v128.store(to, join(c, d), 16)
    v128.store(to, join(e, f), 32)
    v128.store(to, join(g, h), 48)
  }
  for (; column + 4 <= columns; column += 4) {
    let a = f64x2.splat(0)
    let b = a
    for (let p = x + (column << 2); p < end; p += stride) {
      const s = v128.load(p)
      a = f64x2.add(a, low(s))
      b = f64x2.add(b, high(s))
    }
    v128.store(out + (column << 2), join(a, b))
  }
  for (; column < columns; column++) {
    let sum: f64 = 0
    for (let p = x + (column << 2); p < end; p += stride) sum += <f64>load<f32>(p)
    store<f32>(out + (column << 2), <f32>sum)
  }
}

/** Computes the gradient of a ReLU with the output y: out[i] = y[i] > 0 ? x[i] : 0. `out` may be `x`. */
export function mask(out: usize, x: usize, y: usize, count: usize): void {
  let left = count
  for (; left >= 4; left -= 4) {
    const zeros = f32x4.le(v128.load(y), f32x4.splat(0))
    v128.store(out, v128.andnot(v128.load(x), zeros))
    out += 16
    x += 16
    y += 16
  }
  for (; left > 0; left--) {
    store<f32>(out, load<f32>(y) <= 0 ? 0 : load<f32>(x))
    out += 4
    x += 4
    y += 4
  }
}

/** Adds row i of x, with `columns` values, to row ids[i] of out. Skips ids outside [0, segments). */
// @ts-ignore: decorator
@inline
function scatterAdd<T>(
  out: usize,
  x: usize,
  ids: usize,
  rows: usize,
  columns: usize,
  segments: i32,
): void {
  const quads = columns & ~3
  const bytes = columns << 2
  for (let row: usize = 0; row < rows; row++) {
    const id = load<i32>(ids + (row << 2))
    if (id >= 0 && id < segments) {
      const to = out + <usize>id * bytes
      const from = x + row * bytes
      let column: usize = 0
      for (; column < quads; column += 4) {
        const p = column << 2
        v128.store(to + p, v128.add<T>(v128.load(to + p), v128.load(from + p)))
      }
      for (; column < columns; column++) {
        const p = column << 2
        store<T>(to + p, <T>(load<T>(to + p) + load<T>(from + p)))
      }
    }
  }
}

export function scatter_add_float32(
  out: usize,
  x: usize,
  ids: usize,
  rows: usize,
  columns: usize,
  segments: i32,
): void {
  scatterAdd<f32>(out, x, ids, rows, columns, segments)
}

export function scatter_add_int32(
  out: usize,
  x: usize,
  ids: usize,
  rows: usize,
  columns: usize,
  segments: i32,
): void {
  scatterAdd<i32>(out, x, ids, rows, columns, segments)
}
