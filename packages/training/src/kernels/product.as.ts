import { addProduct, read, write } from './lanes.as'
import { pack } from './pack.as'
import { finish_rows } from './rows.as'
import { multiplyTile, RELU } from './tile.as'

// Block sizes as in "Anatomy of high-performance matrix multiplication" (Goto & van de Geijn, 2008). A
// block of b [DEPTH, COLUMNS] fits the second-level cache, and a panel of that block fits the first-level
// cache.
const ROWS: usize = 128
const DEPTH: usize = 256
const COLUMNS: usize = 512

/** Returns the bytes of scratch memory that `product` needs. */
export function scratch_bytes(): usize {
  return ((ROWS * DEPTH + DEPTH * COLUMNS + 4 * 8 * 2 + 8) << 2) + 64
}

/**
 * Computes the matrix product c [m, n] = finish(start + a [m, k] b [k, n]) in float32, with the values of
 * each row of c contiguous in memory.
 *
 * @param cRow - the bytes between rows of c
 * @param accumulates - whether to add the product to the current values of c instead of to `start`
 * @param aRow - the bytes between rows of a; `aColumn`: the bytes between columns of a; one of them is 4
 * @param start - the address of n values (a bias) that are added to every row, or 0
 * @param finisher - RELU, MASK, ADD or 0
 * @param other - [m, n] with the strides of c, for MASK and ADD
 * @param scratch - see `scratch_bytes`
 */
export function product(
  c: usize,
  cRow: usize,
  accumulates: bool,
  a: usize,
  b: usize,
  m: usize,
  n: usize,
  k: usize,
  aRow: usize,
  aColumn: usize,
  bRow: usize,
  bColumn: usize,
  start: usize,
  finisher: i32,
  other: usize,
  scratch: usize,
): void {
  if (m < 4 && bColumn == 4) {
    for (let row: usize = 0; row < m; row++) {
      if (start) memory.copy(c, start, n << 2)
      else if (!accumulates) memory.fill(c, 0, n << 2)
      multiplyRow(c, a, aColumn, b, bRow, n << 2, k)
      if (finisher) finish_rows(c, 1, n, 0, finisher, other)
      c += cRow
      a += aRow
      other += cRow
    }
    return
  }
  const aBlock = scratch
  const bBlock = aBlock + ((ROWS * DEPTH) << 2)
  const edge = bBlock + ((DEPTH * COLUMNS) << 2)
  for (let column: usize = 0; column < n; column += COLUMNS) {
    const columns = min<usize>(COLUMNS, n - column)
    for (let step: usize = 0; step < k; step += DEPTH) {
      const depth = min<usize>(DEPTH, k - step)
      const last = step + depth == k
      pack(bBlock, b + step * bRow + column * bColumn, 8, columns, depth, bColumn, bRow)
      for (let row: usize = 0; row < m; row += ROWS) {
        const rows = min<usize>(ROWS, m - row)
        pack(aBlock, a + row * aRow + step * aColumn, 4, rows, depth, aRow, aColumn)
        const corner = row * cRow + (column << 2)
        multiplyBlocks(
          c + corner,
          cRow,
          aBlock,
          bBlock,
          rows,
          columns,
          depth,
          start ? start + (column << 2) : 0,
          step == 0 && !accumulates,
          last ? finisher : 0,
          other + corner,
          edge,
        )
      }
    }
  }
}

/** Adds a b to a row of c, in the order of the inner dimension. Packing b would take longer. */
function multiplyRow(
  c: usize,
  a: usize,
  aColumn: usize,
  b: usize,
  bRow: usize,
  bytes: usize,
  k: usize,
): void {
  for (; k >= 4; k -= 4) {
    const x0 = v128.load32_splat(a)
    const x1 = v128.load32_splat(a + aColumn)
    const x2 = v128.load32_splat(a + 2 * aColumn)
    const x3 = v128.load32_splat(a + 3 * aColumn)
    let i: usize = 0
    for (; i + 16 <= bytes; i += 16) addFour<v128>(c + i, b + i, bRow, x0, x1, x2, x3)
    for (; i < bytes; i += 4) addFour<f32>(c + i, b + i, bRow, x0, x1, x2, x3)
    a += 4 * aColumn
    b += 4 * bRow
  }
  for (; k > 0; k--) {
    const x = v128.load32_splat(a)
    for (let i: usize = 0; i < bytes; i += 4) {
      write<f32>(c + i, addProduct(read<f32>(c + i), x, read<f32>(b + i)))
    }
    a += aColumn
    b += bRow
  }
}

@inline
function addFour<T>(c: usize, b: usize, row: usize, x0: v128, x1: v128, x2: v128, x3: v128): void {
  let sum = addProduct(read<T>(c), x0, read<T>(b))
  sum = addProduct(sum, x1, read<T>(b + row))
  sum = addProduct(sum, x2, read<T>(b + 2 * row))
  write<T>(c, addProduct(sum, x3, read<T>(b + 3 * row)))
}

function multiplyBlocks(
  c: usize,
  stride: usize,
  a: usize,
  b: usize,
  rows: usize,
  columns: usize,
  depth: usize,
  start: usize,
  first: bool,
  finisher: i32,
  other: usize,
  edge: usize,
): void {
  const edgeOther = edge + 128
  const edgeStart = edge + 256
  for (let column: usize = 0; column < columns; column += 8) {
    const width = min<usize>(8, columns - column)
    let from: usize = 0
    if (first) {
      from = edgeStart
      for (let i: usize = 0; i < 8; i++) {
        const value: f32 = start && i < width ? load<f32>(start + ((column + i) << 2)) : 0
        store<f32>(edgeStart + (i << 2), value)
      }
    }
    let panel = a
    for (let row: usize = 0; row < rows; row += 4) {
      const height = min<usize>(4, rows - row)
      const offset = row * stride + (column << 2)
      if (width == 8 && height == 4) {
        multiplyTile(finisher, c + offset, stride, panel, b, depth, from, other + offset)
      } else {
        copyCorner(edge, 32, c + offset, stride, height, width)
        if (finisher > RELU) copyCorner(edgeOther, 32, other + offset, stride, height, width)
        multiplyTile(finisher, edge, 32, panel, b, depth, from, edgeOther)
        copyCorner(c + offset, stride, edge, 32, height, width)
      }
      panel += depth << 4
    }
    b += depth << 5
  }
}

function copyCorner(
  to: usize,
  toStride: usize,
  from: usize,
  fromStride: usize,
  rows: usize,
  columns: usize,
): void {
  // For so few bytes, `memory.copy` takes longer.
  for (; rows > 0; rows--) {
    for (let i: usize = 0; i < columns << 2; i += 4) store<f32>(to + i, load<f32>(from + i))
    to += toStride
    from += fromStride
  }
}
