import { add, highAt, join, lowAt, read, write } from './lanes.as'
import { ADD, finish } from './tile.as'

/** `finish_rows` for four columns, or one. */
@inline
function finishColumns<T>(
  c: usize,
  rows: usize,
  stride: usize,
  start: usize,
  finisher: i32,
  other: usize,
): void {
  const added = start ? read<T>(start) : f32x4.splat(0)
  for (; rows > 0; rows--) {
    write<T>(c, finish<T>(f32x4.add(read<T>(c), added), finisher, other))
    c += stride
    other += stride
  }
}

/** Adds `start` to the rows of c [rows, columns], then applies the finisher. `other` has the shape of c. */
export function finish_rows(
  c: usize,
  rows: usize,
  columns: usize,
  start: usize,
  finisher: i32,
  other: usize,
): void {
  const stride = columns << 2
  let i: usize = 0
  // Process the columns of one cache line at a time, because rows are often short.
  for (; i + 64 <= stride; i += 64) {
    const from = start ? start + i : 0
    const a0 = from ? v128.load(from) : f32x4.splat(0)
    const a1 = from ? v128.load(from, 16) : f32x4.splat(0)
    const a2 = from ? v128.load(from, 32) : f32x4.splat(0)
    const a3 = from ? v128.load(from, 48) : f32x4.splat(0)
    let to = c + i
    let by = other + i
    for (let row = rows; row > 0; row--) {
      let x0 = f32x4.add(v128.load(to), a0)
      let x1 = f32x4.add(v128.load(to, 16), a1)
      let x2 = f32x4.add(v128.load(to, 32), a2)
      let x3 = f32x4.add(v128.load(to, 48), a3)
      if (finisher == ADD) {
        x0 = f32x4.add(v128.load(by), x0)
        x1 = f32x4.add(v128.load(by, 16), x1)
        x2 = f32x4.add(v128.load(by, 32), x2)
        x3 = f32x4.add(v128.load(by, 48), x3)
        by += stride
      } else if (finisher) {
        x0 = finish<v128>(x0, finisher, by)
        x1 = finish<v128>(x1, finisher, by + 16)
        x2 = finish<v128>(x2, finisher, by + 32)
        x3 = finish<v128>(x3, finisher, by + 48)
        by += stride
      }
      v128.store(to, x0)
      v128.store(to, x1, 16)
      v128.store(to, x2, 32)
      v128.store(to, x3, 48)
      to += stride
    }
  }
  for (; i + 16 <= stride; i += 16) {
    finishColumns<v128>(c + i, rows, stride, start ? start + i : 0, finisher, other + i)
  }
  for (; i < stride; i += 4) {
    finishColumns<f32>(c + i, rows, stride, start ? start + i : 0, finisher, other + i)
  }
}

/** Sums four columns, or one, from the address x up to `end`. */
@inline
function sumColumns<T>(out: usize, x: usize, end: usize, stride: usize): void {
  let a = f64x2.splat(0)
  let b = a
  for (; x < end; x += stride) {
    a = f64x2.add(a, lowAt<T>(x))
    b = f64x2.add(b, highAt<T>(x))
  }
  write<T>(out, join(a, b))
}

/** Sums the rows of x: out[j] = sum over i of x[i, j], in double precision and in row order. */
export function sum_rows(out: usize, x: usize, rows: usize, columns: usize): void {
  const stride = columns << 2
  const end = x + rows * stride
  let column: usize = 0
  // Compute as many sums at once as fit into the registers.
  for (; column + 64 <= stride; column += 64) {
    let a = f64x2.splat(0)
    let b = a
    let c = a
    let d = a
    let e = a
    let f = a
    let g = a
    let h = a
    for (let p = x + column; p < end; p += stride) {
      a = f64x2.add(a, lowAt<v128>(p))
      b = f64x2.add(b, highAt<v128>(p))
      c = f64x2.add(c, lowAt<v128>(p + 16))
      d = f64x2.add(d, highAt<v128>(p + 16))
      e = f64x2.add(e, lowAt<v128>(p + 32))
      f = f64x2.add(f, highAt<v128>(p + 32))
      g = f64x2.add(g, lowAt<v128>(p + 48))
      h = f64x2.add(h, highAt<v128>(p + 48))
    }
    const to = out + column
    v128.store(to, join(a, b))
    v128.store(to, join(c, d), 16)
    v128.store(to, join(e, f), 32)
    v128.store(to, join(g, h), 48)
  }
  for (; column + 16 <= stride; column += 16) {
    sumColumns<v128>(out + column, x + column, end, stride)
  }
  for (; column < stride; column += 4) sumColumns<f32>(out + column, x + column, end, stride)
}

@inline
function maskAt<T>(out: usize, x: usize, y: usize): void {
  const zeros = f32x4.le(read<T>(y), f32x4.splat(0))
  write<T>(out, v128.andnot(read<T>(x), zeros))
}

/** Computes the gradient of a ReLU with the output y: out[i] = y[i] > 0 ? x[i] : 0. `out` may be `x`. */
export function mask(out: usize, x: usize, y: usize, count: usize): void {
  const bytes = count << 2
  let p: usize = 0
  for (; p + 16 <= bytes; p += 16) maskAt<v128>(out + p, x + p, y + p)
  for (; p < bytes; p += 4) maskAt<f32>(out + p, x + p, y + p)
}

/** Adds row i of x, of 32-bit numbers, to row ids[i] of out. Skips ids outside [0, segments). */
export function scatter_add(
  out: usize,
  x: usize,
  ids: usize,
  rows: usize,
  columns: usize,
  segments: i32,
  isInteger: bool,
): void {
  const bytes = columns << 2
  for (let row: usize = 0; row < rows; row++) {
    const id = load<i32>(ids + (row << 2))
    if (id >= 0 && id < segments) {
      const to = out + <usize>id * bytes
      const from = x + row * bytes
      if (isInteger) add<i32>(to, from, bytes)
      else add<f32>(to, from, bytes)
    }
  }
}
