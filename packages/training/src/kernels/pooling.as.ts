// Max pooling over the windows of geometry.as.ts.

import { Geometry } from './geometry.as'

/** The larger of two values; `largest` if `value` is NaN. */
// @ts-ignore: decorator
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
// @ts-ignore: decorator
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
 * Computes the gradient of max pooling: adds dy to dx at the largest value of x in each window. If
 * several values are the largest, uses the first. dx must contain zeros.
 *
 * @param least - a window without a larger value has no gradient. Pass -Infinity, or 0 if x is the output
 *   of a ReLU, so that dx includes the gradient of the ReLU
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
  const isApart = g.down >= g.tall && g.right >= g.wide
  const isSquare = isApart && g.tall == 2 && g.wide == 2
  g.goTo(0)
  for (; windows > 0; windows--) {
    const image = g.image
    const row = g.row
    const column = g.column
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
    const below = min(g.height, row + g.tall)
    const before = max(0, column)
    const behind = min(g.width, column + g.wide)
    for (; channel < quads; channel += 16) {
      let largest = f32x4.splat(least)
      let places = i32x4.splat(-1)
      for (let i = above; i < below; i++) {
        let place = image + <usize>i * g.line + <usize>before * g.pixel + channel
        for (let j = before; j < behind; j++) {
          const values = v128.load(x + place)
          const larger = f32x4.gt(values, largest)
          largest = v128.bitselect(values, largest, larger)
          places = v128.bitselect(i32x4.splat(<i32>place), places, larger)
          place += g.pixel
        }
      }
      if (isApart) {
        const slopes = v128.load(dy)
        for (let i = above; i < below; i++) {
          let place = image + <usize>i * g.line + <usize>before * g.pixel + channel
          for (let j = before; j < behind; j++) {
            const isLargest = i32x4.eq(places, i32x4.splat(<i32>place))
            v128.store(dx + place, v128.and(slopes, isLargest))
            place += g.pixel
          }
        }
      } else {
        addAt(dx, i32x4.extract_lane(places, 0), dy)
        addAt(dx + 4, i32x4.extract_lane(places, 1), dy + 4)
        addAt(dx + 8, i32x4.extract_lane(places, 2), dy + 8)
        addAt(dx + 12, i32x4.extract_lane(places, 3), dy + 12)
      }
      dy += 16
    }
    for (; channel < g.pixel; channel += 4) {
      let largest = least
      let found = -1
      for (let i = above; i < below; i++) {
        let place = image + <usize>i * g.line + <usize>before * g.pixel + channel
        for (let j = before; j < behind; j++) {
          const value = load<f32>(x + place)
          if (value > largest) {
            largest = value
            found = <i32>place
          }
          place += g.pixel
        }
      }
      addAt(dx, found, dy)
      dy += 4
    }
  }
}

/**
 * Skips the index -1, which stands for a window without a largest value: all its values are NaN or
 * outside the image.
 */
// @ts-ignore: decorator
@inline
function addAt(dx: usize, place: i32, dy: usize): void {
  if (place == -1) return
  const at = dx + <usize>place
  store<f32>(at, load<f32>(at) + load<f32>(dy))
}
