// Convolutions and average pooling by the windows of geometry.as.ts.

import { Geometry } from './geometry.as'
import { add, read, write } from './lanes.as'

/** out = x */
@inline
function copy(out: usize, x: usize, bytes: usize): void {
  let at: usize = 0
  if (bytes >= 16) {
    for (; at + 64 <= bytes; at += 64) {
      v128.store(out + at, v128.load(x + at))
      v128.store(out + at, v128.load(x + at, 16), 16)
      v128.store(out + at, v128.load(x + at, 32), 32)
      v128.store(out + at, v128.load(x + at, 48), 48)
    }
    for (; at + 16 <= bytes; at += 16) v128.store(out + at, v128.load(x + at))
  }
  if (bytes & 8) {
    store<u64>(out + at, load<u64>(x + at))
    at += 8
  }
  if (bytes & 4) store<f32>(out + at, load<f32>(x + at))
}

@inline
function addProductAt<T>(out: usize, x: usize, y: v128): void {
  write<T>(out, f32x4.add(read<T>(out), f32x4.mul(read<T>(x), y)))
}

/** out += x y, value by value */
@inline
function addProducts(out: usize, x: usize, y: usize, bytes: usize): void {
  let at: usize = 0
  for (; at + 16 <= bytes; at += 16) addProductAt<v128>(out + at, x + at, v128.load(y + at))
  for (; at < bytes; at += 4) addProductAt<f32>(out + at, x + at, read<f32>(y + at))
}

/** out += factor x */
@inline
function addMultiple(out: usize, factor: f32, x: usize, bytes: usize): void {
  const factors = f32x4.splat(factor)
  let at: usize = 0
  for (; at + 16 <= bytes; at += 16) addProductAt<v128>(out + at, x + at, factors)
  for (; at < bytes; at += 4) addProductAt<f32>(out + at, x + at, factors)
}

/** out = 0. For few bytes, `memory.fill` takes longer. */
@inline
function clear(out: usize, bytes: usize): void {
  for (const end = out + bytes; out < end; out += 4) store<f32>(out, 0)
}

/** Copies a row of a window whose columns are `step` apart. Columns outside of the image become 0. */
function takeSparse(
  to: usize,
  line: usize,
  column: i32,
  wide: i32,
  step: i32,
  width: i32,
  pixel: usize,
): void {
  for (; wide > 0; wide--) {
    if (column < 0 || column >= width) clear(to, pixel)
    else copy(to, line + <usize>column * pixel, pixel)
    column += step
    to += pixel
  }
}

/** Copies the values of the windows [first, last) to `patches` [windows, tall, wide, channels]. */
export function take_windows(
  patches: usize,
  images: usize,
  first: i32,
  last: i32,
  geometry: usize,
): void {
  const g = changetype<Geometry>(geometry)
  const right = g.right
  const step = <usize>right * g.pixel
  const run = <usize>g.wide * g.pixel
  const size = <usize>g.tall * run
  g.goTo(first)
  while (first < last) {
    // Count the windows up to the end of a row of outputs.
    const count = min(last - first, g.columns - (g.column + g.left) / right)
    for (let i = 0; i < g.tall; i++) {
      const row = g.row + i * g.apartRows
      const width = row < 0 || row >= g.height ? 0 : g.width
      const line = images + g.image + <usize>row * g.line
      let to = patches + <usize>i * run
      let column = g.column
      let left = count
      while (left > 0) {
        const inside = width - g.wide - column
        if (column < 0 || inside < 0 || g.apartColumns > 1) {
          takeSparse(to, line, column, g.wide, g.apartColumns, width, g.pixel)
          to += size
          column += right
          left--
        } else {
          const whole = min(left, inside / right + 1)
          const end = to + <usize>whole * size
          for (let from = line + <usize>column * g.pixel; to < end; to += size) {
            copy(to, from, run)
            from += step
          }
          column += whole * right
          left -= whole
        }
      }
    }
    patches += <usize>count * size
    first += count
    g.advance(count)
  }
}

/**
 * Copies the values of windows of images with one channel and a stride of 1 to `patches` [tall, wide,
 * windows], whose rows are parts of rows of the images.
 */
export function take_single(
  patches: usize,
  images: usize,
  first: i32,
  last: i32,
  geometry: usize,
): void {
  const g = changetype<Geometry>(geometry)
  const stride = <usize>(last - first) << 2
  g.goTo(first)
  while (first < last) {
    // Count the windows up to the end of a row of outputs.
    const count = min(last - first, g.columns - g.column - g.left)
    let to = patches
    for (let i = 0; i < g.tall; i++) {
      const row = g.row + i * g.apartRows
      const width = row < 0 || row >= g.height ? 0 : g.width
      const line = images + g.image + <usize>row * g.line
      for (let j = 0; j < g.wide; j++) {
        const column = g.column + j * g.apartColumns
        const from = min(count, max(0, -column))
        const until = max(from, min(count, width - column))
        const inside = to + (<usize>from << 2)
        const bytes = <usize>(until - from) << 2
        clear(to, <usize>from << 2)
        copy(inside, line + (<usize>(column + from) << 2), bytes)
        clear(inside + bytes, <usize>(count - until) << 2)
        to += stride
      }
    }
    patches += <usize>count << 2
    first += count
    g.advance(count)
  }
}

/**
 * Adds `patches` to the windows [first, last) of the images: the transpose of `take_windows`. Clears each
 * image before its first window.
 */
export function add_windows(
  images: usize,
  patches: usize,
  first: i32,
  last: i32,
  geometry: usize,
): void {
  const g = changetype<Geometry>(geometry)
  const run = <usize>g.wide * g.pixel
  for (g.goTo(first); first < last; first++) {
    const image = images + g.image
    const row = g.row
    const column = g.column
    if (g.isFirst) memory.fill(image, 0, g.size)
    const from = max(0, -column)
    const until = min(g.wide, g.width - column)
    for (let i = row; i < row + g.tall; i++) {
      if (i >= 0 && i < g.height && from < until) {
        const at = image + <usize>i * g.line + <usize>(column + from) * g.pixel
        add<f32>(at, patches + <usize>from * g.pixel, <usize>(until - from) * g.pixel)
      }
      patches += run
    }
    g.advance(1)
  }
}

const FILTER: i32 = 0
const IMAGES: i32 = 1
const AVERAGE: i32 = 2

/**
 * Computes the gradient of a depthwise convolution with `weights` [tall, wide, channels, multiplier]: adds
 * it to the weights (FILTER), or writes that of the images (IMAGES). For AVERAGE, writes the gradient of
 * average pooling: the sums of factor dy over all windows of a value. dy is [windows, channels,
 * multiplier].
 */
export function window_gradient(
  images: usize,
  weights: usize,
  dy: usize,
  kind: i32,
  factor: f32,
  windows: i32,
  multiplier: i32,
  geometry: usize,
): void {
  if (kind == FILTER) addGradient(FILTER, images, weights, 0, dy, windows, multiplier, geometry)
  else if (kind == IMAGES) addGradient(IMAGES, images, weights, 0, dy, windows, multiplier, geometry)
  else addGradient(AVERAGE, images, 0, factor, dy, windows, 1, geometry)
}

@inline
function addGradient(
  kind: i32,
  images: usize,
  weights: usize,
  factor: f32,
  dy: usize,
  windows: i32,
  multiplier: i32,
  geometry: usize,
): void {
  const g = changetype<Geometry>(geometry)
  const bytes = g.pixel * <usize>multiplier
  g.goTo(0)
  for (; windows > 0; windows--) {
    const image = images + g.image
    const row = g.row
    const column = g.column
    if (kind != FILTER && g.isFirst) memory.fill(image, 0, g.size)
    g.advance(1)
    for (let i = max(0, row); i < min(g.height, row + g.tall); i++) {
      for (let j = max(0, column); j < min(g.width, column + g.wide); j++) {
        const pixel = image + <usize>i * g.line + <usize>j * g.pixel
        if (kind == AVERAGE) {
          addMultiple(pixel, factor, dy, bytes)
          continue
        }
        const weight = weights + <usize>((i - row) * g.wide + j - column) * bytes
        if (multiplier == 1) {
          if (kind == FILTER) addProducts(weight, pixel, dy, bytes)
          else addProducts(pixel, weight, dy, bytes)
        } else {
          for (let channel = 0; channel < g.channels; channel++) {
            const offset = <usize>(channel * multiplier) << 2
            const value = pixel + (<usize>channel << 2)
            if (kind == FILTER) {
              addMultiple(weight + offset, load<f32>(value), dy + offset, <usize>multiplier << 2)
            } else {
              let sum: f32 = 0
              for (let m = offset; m < offset + (<usize>multiplier << 2); m += 4) {
                sum += load<f32>(weight + m) * load<f32>(dy + m)
              }
              store<f32>(value, load<f32>(value) + sum)
            }
          }
        }
      }
    }
    dy += bytes
  }
}
