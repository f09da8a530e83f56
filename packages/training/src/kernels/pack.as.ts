// A matrix product first copies its operands into panels. In a panel, the values of `width` rows (or
// columns) for one step of the inner dimension are adjacent. The inner loop then reads memory
// sequentially, so a transposed operand takes no more time.

/** Transposes 4 x 4 values: reads four runs `stride` bytes apart, writes rows `width` values apart. */
@inline
function transposeSquare(to: usize, width: usize, from: usize, stride: usize): void {
  const a = v128.load(from)
  const b = v128.load(from + stride)
  const c = v128.load(from + 2 * stride)
  const d = v128.load(from + 3 * stride)
  const abLow = v128.shuffle<f32>(a, b, 0, 4, 1, 5)
  const abHigh = v128.shuffle<f32>(a, b, 2, 6, 3, 7)
  const cdLow = v128.shuffle<f32>(c, d, 0, 4, 1, 5)
  const cdHigh = v128.shuffle<f32>(c, d, 2, 6, 3, 7)
  v128.store(to, v128.shuffle<f32>(abLow, cdLow, 0, 1, 4, 5))
  v128.store(to + (width << 2), v128.shuffle<f32>(abLow, cdLow, 2, 3, 6, 7))
  v128.store(to + (width << 3), v128.shuffle<f32>(abHigh, cdHigh, 0, 1, 4, 5))
  v128.store(to + width * 12, v128.shuffle<f32>(abHigh, cdHigh, 2, 3, 6, 7))
}

/** Fills the last panel, one value at a time. Lanes from `lanes` to `width` - 1 become zero. */
function packEdge(
  to: usize,
  from: usize,
  width: usize,
  lanes: usize,
  depth: usize,
  laneStride: usize,
  depthStride: usize,
): void {
  const step = width << 2
  if (lanes < width) {
    for (let i: usize = 0; i < depth * step; i += 16) v128.store(to + i, f32x4.splat(0))
  }
  for (let k = depth; k > 0; k--) {
    let x = from
    for (let lane: usize = 0; lane < lanes; lane++) {
      store<f32>(to + (lane << 2), load<f32>(x))
      x += laneStride
    }
    to += step
    from += depthStride
  }
}

/** Copies `lanes` x `depth` values into panels of `width` lanes. One of the strides is 4 bytes. */
@inline
export function pack(
  to: usize,
  from: usize,
  width: usize,
  lanes: usize,
  depth: usize,
  laneStride: usize,
  depthStride: usize,
): void {
  const bytes = (width * depth) << 2
  for (let left = lanes; left > 0; ) {
    if (left < width) {
      packEdge(to, from, width, left, depth, laneStride, depthStride)
      return
    }
    if (laneStride == 4) packRows(to, from, width, depth, depthStride)
    else packColumns(to, from, width, depth, laneStride)
    to += bytes
    from += width * laneStride
    left -= width
  }
}

@inline
function packRows(to: usize, from: usize, width: usize, depth: usize, depthStride: usize): void {
  for (let k = depth; k > 0; k--) {
    v128.store(to, v128.load(from))
    if (width == 8) v128.store(to, v128.load(from, 16), 16)
    to += width << 2
    from += depthStride
  }
}

@inline
function packColumns(to: usize, from: usize, width: usize, depth: usize, laneStride: usize): void {
  let left = depth
  for (; left >= 4; left -= 4) {
    transposeSquare(to, width, from, laneStride)
    if (width == 8) transposeSquare(to + 16, width, from + 4 * laneStride, laneStride)
    to += width << 4
    from += 16
  }
  if (left > 0) packEdge(to, from, width, width, left, laneStride, 4)
}

/** Transposes x [rows, columns], whose rows are `stride` bytes apart. */
export function transpose(
  out: usize,
  x: usize,
  rows: usize,
  columns: usize,
  stride: usize,
): void {
  const outStride = rows << 2
  const wholeRows = rows & ~3
  // Process the columns of one cache line at a time.
  for (let column: usize = 0; column < columns; column += 16) {
    const end = min(columns, column + 16)
    const whole = end & ~3
    for (let row: usize = 0; row < wholeRows; row += 4) {
      const from = x + row * stride
      const to = out + (row << 2)
      for (let i = column; i < whole; i += 4) {
        transposeSquare(to + i * outStride, rows, from + (i << 2), stride)
      }
    }
    if (whole < end) transposeEdge(out, x, 0, wholeRows, whole, end, outStride, stride)
    if (wholeRows < rows) transposeEdge(out, x, wholeRows, rows, column, end, outStride, stride)
  }
}

function transposeEdge(
  out: usize,
  x: usize,
  firstRow: usize,
  rows: usize,
  first: usize,
  columns: usize,
  outStride: usize,
  stride: usize,
): void {
  for (let row = firstRow; row < rows; row++) {
    for (let column = first; column < columns; column++) {
      store<f32>(out + column * outStride + (row << 2), load<f32>(x + row * stride + (column << 2)))
    }
  }
}
