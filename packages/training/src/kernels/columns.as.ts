// Passes over the columns of matrices, for batch normalization.
import { highAt, lowAt, read, write } from './lanes.as'

/** The number of rows to sum before the next rows, so that they stay in the first-level cache. */
const ROWS: usize = 64

/** `column_sums` of four columns. */
@inline
function sumFour(
  y: usize,
  x: usize,
  sums: usize,
  products: usize,
  centers: usize,
  rows: usize,
  stride: usize,
): void {
  let a = v128.load(sums)
  let b = v128.load(sums, 16)
  let c = v128.load(products)
  let d = v128.load(products, 16)
  const left = v128.load(centers)
  const right = v128.load(centers, 16)
  for (; rows > 0; rows--) {
    const low = lowAt<v128>(y)
    const high = highAt<v128>(y)
    a = f64x2.add(a, low)
    b = f64x2.add(b, high)
    c = f64x2.add(c, f64x2.mul(low, f64x2.sub(lowAt<v128>(x), left)))
    d = f64x2.add(d, f64x2.mul(high, f64x2.sub(highAt<v128>(x), right)))
    y += stride
    x += stride
  }
  v128.store(sums, a)
  v128.store(sums, b, 16)
  v128.store(products, c)
  v128.store(products, d, 16)
}

/** `column_sums` of one column. */
@inline
function sumOne(
  y: usize,
  x: usize,
  sums: usize,
  products: usize,
  center: f64,
  rows: usize,
  stride: usize,
): void {
  let a = load<f64>(sums)
  let b = load<f64>(products)
  for (; rows > 0; rows--) {
    const factor = <f64>load<f32>(y)
    a += factor
    b += factor * (<f64>load<f32>(x) - center)
    y += stride
    x += stride
  }
  store<f64>(sums, a)
  store<f64>(products, b)
}

/**
 * Sums y, and y (x - center), over the rows of y and x [rows, columns], in doubles and in row order.
 *
 * @param sums - receives 2 x columns doubles; must be followed by `columns` doubles, the centers
 */
export function column_sums(y: usize, x: usize, sums: usize, rows: usize, columns: usize): void {
  const bytes = columns << 2
  const products = sums + (columns << 3)
  const centers = products + (columns << 3)
  memory.fill(sums, 0, columns << 4)
  while (rows > 0) {
    const part = min(rows, ROWS)
    let p: usize = 0
    for (; p + 16 <= bytes; p += 16) {
      const at = p << 1
      sumFour(y + p, x + p, sums + at, products + at, centers + at, part, bytes)
    }
    for (; p < bytes; p += 4) {
      const at = p << 1
      sumOne(y + p, x + p, sums + at, products + at, load<f64>(centers + at), part, bytes)
    }
    rows -= part
    x += part * bytes
    y += part * bytes
  }
}

@inline
function combineAt<T>(out: usize, y: usize, x: usize, factors: usize, bytes: usize): void {
  const center = factors + 3 * bytes
  const centered = f32x4.sub(f32x4.sub(read<T>(x), read<T>(center)), read<T>(center + bytes))
  const sum = f32x4.add(
    f32x4.mul(read<T>(factors), read<T>(y)),
    f32x4.mul(read<T>(factors + bytes), centered),
  )
  write<T>(out, f32x4.add(sum, read<T>(factors + 2 * bytes)))
}

/**
 * out = a y + b (x - center) + c for [rows, columns], with one a, b, c and center per column.
 *
 * @param factors - five rows of floats: a, b, c, and two rows whose sum is the center
 */
export function combine_columns(
  out: usize,
  y: usize,
  x: usize,
  factors: usize,
  rows: usize,
  columns: usize,
): void {
  const bytes = columns << 2
  for (; rows > 0; rows--) {
    let p: usize = 0
    for (; p + 16 <= bytes; p += 16) combineAt<v128>(out + p, y + p, x + p, factors + p, bytes)
    for (; p < bytes; p += 4) combineAt<f32>(out + p, y + p, x + p, factors + p, bytes)
    out += bytes
    y += bytes
    x += bytes
  }
}
