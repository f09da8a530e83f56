// Passes over the columns of matrices, for batch normalization.
import { low, read, write } from './lanes.as'

/**
 * Sums y, and y (x - center), over the rows of y and x [rows, columns], in doubles and in row order.
 *
 * @param sums - gets 2 x columns doubles; followed by `columns` doubles, the centers
 */
export function column_sums(y: usize, x: usize, sums: usize, rows: usize, columns: usize): void {
  const bytes = columns << 2
  const products = sums + (columns << 3)
  const centers = products + (columns << 3)
  memory.fill(sums, 0, columns << 4)
  for (; rows > 0; rows--) {
    let p: usize = 0
    for (; p + 8 <= bytes; p += 8) {
      const at = p << 1
      const factor = low(v128.load64_zero(y + p))
      const centered = f64x2.sub(low(v128.load64_zero(x + p)), v128.load(centers + at))
      const product = f64x2.mul(factor, centered)
      v128.store(sums + at, f64x2.add(v128.load(sums + at), factor))
      v128.store(products + at, f64x2.add(v128.load(products + at), product))
    }
    if (p < bytes) {
      const at = p << 1
      const factor = <f64>load<f32>(y + p)
      const product = factor * (<f64>load<f32>(x + p) - load<f64>(centers + at))
      store<f64>(sums + at, load<f64>(sums + at) + factor)
      store<f64>(products + at, load<f64>(products + at) + product)
    }
    x += bytes
    y += bytes
  }
}

// @ts-ignore: decorator
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
 * out = a y + b (x - center) + c for [rows, columns], with numbers for each column.
 *
 * @param factors - rows of floats: a, b, c, and the two whose sum is the center
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
