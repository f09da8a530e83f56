// Max pooling over the windows of geometry.as.ts.

import { Geometry } from './geometry.as'
import { read } from './lanes.as'

/** The larger of two values; `largest` if `value` is NaN. */
@inline
function larger(value: v128, largest: v128): v128 {
  return f32x4.pmax(largest, value)
}

/** Computes the largest value of each window, which is -Infinity if all are NaN or outside the image. */
export function max_pool(out: usize, x: usize, windows: i32, geometry: usize): void {
  const g = changetype<Geometry>(geometry)
  const quads = g.pixel & ~15
  g.goTo(0)
  for (; windows > 0; windows--) {
    const above = max(0, g.row)
    const below = min(g.height, g.row + g.tall)
    const before = max(0, g.column)
    const behind = min(g.width, g.column + g.wide)
    const corner = x + g.image + <usize>above * g.line + <usize>before * g.pixel
    let channel: usize = 0
    if (below - above == 2 && behind - before == 2) {
      for (; channel < quads; channel += 16) {
        const place = corner + channel
        let largest = larger(v128.load(place), f32x4.splat(-Infinity))
        largest = larger(v128.load(place + g.pixel), largest)
        largest = larger(v128.load(place + g.line), largest)
        v128.store(out + channel, larger(v128.load(place + g.line + g.pixel), largest))
      }
    }
    for (; channel < g.pixel; channel += channel < quads ? 16 : 4) {
      let largest = f32x4.splat(-Infinity)
      let line = corner + channel
      for (let i = above; i < below; i++) {
        let place = line
        for (let j = before; j < behind; j++) {
          const value = channel < quads ? v128.load(place) : v128.load32_zero(place)
          largest = larger(value, largest)
          place += g.pixel
        }
        line += g.line
      }
      if (channel < quads) v128.store(out + channel, largest)
      else v128.store32_lane(out + channel, largest, 0)
    }
    out += g.pixel
    g.advance(1)
  }
}

/** The gradient of one window of 2 x 2 for four channels. */
@inline
function squareGradient(
  dx: usize,
  x: usize,
  dy: usize,
  pixel: usize,
  line: usize,
  least: v128,
): void {
  const a = v128.load(x)
  const b = v128.load(x + pixel)
  const c = v128.load(x + line)
  const d = v128.load(x + line + pixel)
  const first = larger(a, least)
  const second = larger(b, first)
  const third = larger(c, second)
  let slopes = v128.load(dy)
  const isD = f32x4.gt(d, third)
  v128.store(dx + line + pixel, v128.and(slopes, isD))
  slopes = v128.andnot(slopes, isD)
  const isC = f32x4.gt(c, second)
  v128.store(dx + line, v128.and(slopes, isC))
  slopes = v128.andnot(slopes, isC)
  const isB = f32x4.gt(b, first)
  v128.store(dx + pixel, v128.and(slopes, isB))
  slopes = v128.andnot(slopes, isB)
  v128.store(dx, v128.and(slopes, f32x4.gt(a, least)))
}

/**
 * Computes the gradient of max pooling: adds dy to zeros at the largest value of x in each window. If
 * several values are the largest, uses the first.
 *
 * @param least - windows whose values are all at most `least` get no gradient. Pass -Infinity, or 0 if x
 *   is the output of a ReLU, so that dx includes the gradient of the ReLU
 */
export function max_pool_gradient(
  dx: usize,
  x: usize,
  dy: usize,
  windows: i32,
  geometry: usize,
  least: f32,
): void {
  const g = changetype<Geometry>(geometry)
  const quads = g.pixel & ~15
  const isSquare = g.tall == 2 && g.wide == 2 && g.down >= 2 && g.right >= 2
  const isCovered =
    isSquare &&
    quads == g.pixel &&
    g.down + g.right == 4 &&
    (g.top | g.left) == 0 &&
    g.height == 2 * g.rows &&
    g.width == 2 * g.columns
  g.goTo(0)
  for (; windows > 0; windows--) {
    const image = g.image
    const row = g.row
    const column = g.column
    if (!isCovered && g.isFirst) memory.fill(dx + image, 0, g.size)
    g.advance(1)
    let channel: usize = 0
    if (isSquare && row >= 0 && row + 2 <= g.height && column >= 0 && column + 2 <= g.width) {
      const at = image + <usize>row * g.line + <usize>column * g.pixel
      for (; channel < quads; channel += 16) {
        squareGradient(dx + at + channel, x + at + channel, dy, g.pixel, g.line, f32x4.splat(least))
        dy += 16
      }
    }
    const above = max(0, row)
    const rows = min(g.height, row + g.tall) - above
    const before = max(0, column)
    const columns = min(g.width, column + g.wide) - before
    const corner = image + <usize>above * g.line + <usize>before * g.pixel
    for (; channel < quads; channel += 16) {
      addGradient<v128>(dx, x, corner + channel, rows, columns, g.pixel, g.line, dy, least)
      dy += 16
    }
    for (; channel < g.pixel; channel += 4) {
      addGradient<f32>(dx, x, corner + channel, rows, columns, g.pixel, g.line, dy, least)
      dy += 4
    }
  }
}

/** Adds dy of a window for four channels, or one, to dx at the largest value. `from` is an offset in x. */
@inline
function addGradient<T>(
  dx: usize,
  x: usize,
  from: usize,
  rows: i32,
  columns: i32,
  pixel: usize,
  line: usize,
  dy: usize,
  least: f32,
): void {
  let largest = f32x4.splat(least)
  let places = i32x4.splat(-1)
  for (; rows > 0; rows--) {
    let place = from
    for (let left = columns; left > 0; left--) {
      const values = read<T>(x + place)
      const isLarger = f32x4.gt(values, largest)
      largest = v128.bitselect(values, largest, isLarger)
      places = v128.bitselect(i32x4.splat(<i32>place), places, isLarger)
      place += pixel
    }
    from += line
  }
  addAt(dx, i32x4.extract_lane(places, 0), dy)
  if (isVector<T>()) {
    addAt(dx, i32x4.extract_lane(places, 1), dy, 4)
    addAt(dx, i32x4.extract_lane(places, 2), dy, 8)
    addAt(dx, i32x4.extract_lane(places, 3), dy, 12)
  }
}

/** Adds to dx at an offset. Ignores -1, which stands for a window without a value above `least`. */
@inline
function addAt(dx: usize, place: i32, dy: usize, channel: usize = 0): void {
  if (place == -1) return
  const at = dx + <usize>place + channel
  store<f32>(at, load<f32>(at) + load<f32>(dy + channel))
}
