// The sliding windows of convolutions and pooling over images [batch, height, width, channels]. Windows
// are numbered in the order of the outputs [batch, rows, columns]. Values outside an image are 0.

/** The fields of `Geometry` in backend/wasm/windows.ts, in the same order. See there for their meaning. */
@unmanaged
class Geometry {
  height: i32 = 0
  width: i32 = 0
  channels: i32 = 0
  rows: i32 = 0
  columns: i32 = 0
  tall: i32 = 0
  wide: i32 = 0
  down: i32 = 0
  right: i32 = 0
  top: i32 = 0
  left: i32 = 0

  /** The byte offset of the image that contains the current window. */
  image: usize = 0
  /** The first row and column of the current window. They may be outside the image. */
  row: i32 = 0
  column: i32 = 0

  goTo(index: i32): void {
    const line = index / this.columns
    this.image = <usize>(line / this.rows) * <usize>this.height * this.line
    this.row = (line % this.rows) * this.down - this.top
    this.column = (index % this.columns) * this.right - this.left
  }

  /** Goes to a later window, at most the first of the next row. Divisions take longer than small windows. */
  @inline
  advance(windows: i32): void {
    this.column += windows * this.right
    if (this.column == this.columns * this.right - this.left) {
      this.column = -this.left
      this.row += this.down
      if (this.row == this.rows * this.down - this.top) {
        this.row = -this.top
        this.image += <usize>this.height * this.line
      }
    }
  }

  @inline
  get pixel(): usize {
    return <usize>this.channels << 2
  }

  @inline
  get line(): usize {
    return <usize>this.width * this.pixel
  }
}

/** out = x */
// @ts-ignore: decorator
@inline
function copy(out: usize, x: usize, bytes: usize): void {
  const even = bytes & ~15
  let at: usize = 0
  for (; at < even; at += 16) v128.store(out + at, v128.load(x + at))
  if (bytes & 8) {
    store<u64>(out + at, load<u64>(x + at))
    at += 8
  }
  if (bytes & 4) store<f32>(out + at, load<f32>(x + at))
}

/** out += x */
// @ts-ignore: decorator
@inline
function add(out: usize, x: usize, bytes: usize): void {
  const even = bytes & ~15
  let at: usize = 0
  for (; at < even; at += 16) {
    v128.store(out + at, f32x4.add(v128.load(out + at), v128.load(x + at)))
  }
  for (; at < bytes; at += 4) store<f32>(out + at, load<f32>(out + at) + load<f32>(x + at))
}

/** out += x y, value by value */
// @ts-ignore: decorator
@inline
function addProducts(out: usize, x: usize, y: usize, bytes: usize): void {
  const even = bytes & ~15
  let at: usize = 0
  for (; at < even; at += 16) {
    const product = f32x4.mul(v128.load(x + at), v128.load(y + at))
    v128.store(out + at, f32x4.add(v128.load(out + at), product))
  }
  for (; at < bytes; at += 4) {
    store<f32>(out + at, load<f32>(out + at) + load<f32>(x + at) * load<f32>(y + at))
  }
}

/** out += factor x */
// @ts-ignore: decorator
@inline
function addMultiple(out: usize, factor: f32, x: usize, bytes: usize): void {
  const even = bytes & ~15
  let at: usize = 0
  for (; at < even; at += 16) {
    const product = f32x4.mul(v128.load(x + at), f32x4.splat(factor))
    v128.store(out + at, f32x4.add(v128.load(out + at), product))
  }
  for (; at < bytes; at += 4) {
    store<f32>(out + at, load<f32>(out + at) + load<f32>(x + at) * factor)
  }
}

/** out = 0. For few bytes, `memory.fill` takes longer. */
// @ts-ignore: decorator
@inline
function clear(out: usize, bytes: usize): void {
  for (const end = out + bytes; out < end; out += 4) store<f32>(out, 0)
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
  const run = <usize>g.wide * g.pixel
  const size = <usize>g.tall * run
  g.goTo(first)
  while (first < last) {
    // The windows up to the end of a row of outputs.
    const count = min(last - first, g.columns - (g.column + g.left) / g.right)
    for (let i = 0; i < g.tall; i++) {
      const row = g.row + i
      const isOutside = row < 0 || row >= g.height
      const line = images + g.image + <usize>row * g.line
      let to = patches + <usize>i * run
      let column = g.column
      for (let n = count; n > 0; n--) {
        const from = max(0, -column)
        const until = min(g.wide, g.width - column)
        if (isOutside || until <= from) {
          clear(to, run)
        } else if (until - from == g.wide) {
          copy(to, line + <usize>column * g.pixel, run)
        } else {
          const start = <usize>from * g.pixel
          const end = <usize>until * g.pixel
          clear(to, start)
          copy(to + start, line + <usize>(column + from) * g.pixel, end - start)
          clear(to + end, run - end)
        }
        to += size
        column += g.right
      }
    }
    patches += <usize>count * size
    first += count
    g.advance(count)
  }
}

/**
 * Adds `patches` to the values of the windows [first, last) in the images. This is the transpose of
 * `take_windows`.
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
    const from = max(0, -column)
    const until = min(g.wide, g.width - column)
    for (let i = row; i < row + g.tall; i++) {
      if (i >= 0 && i < g.height && from < until) {
        const at = image + <usize>i * g.line + <usize>(column + from) * g.pixel
        add(at, patches + <usize>from * g.pixel, <usize>(until - from) * g.pixel)
      }
      patches += run
    }
    g.advance(1)
  }
}

/** The larger of two values; `largest` if `value` is NaN. */
// @ts-ignore: decorator
@inline
function larger(value: v128, largest: v128): v128 {
  return v128.bitselect(value, largest, f32x4.gt(value, largest))
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
function squareGradient(dx: usize, x: usize, dy: usize, pixel: usize, line: usize): void {
  const a = v128.load(x)
  const b = v128.load(x + pixel)
  const c = v128.load(x + line)
  const d = v128.load(x + line + pixel)
  const least = f32x4.splat(-Infinity)
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
 */
export function max_pool_gradient(
  dx: usize,
  x: usize,
  dy: usize,
  windows: i32,
  geometry: usize,
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
        squareGradient(dx + at + channel, x + at + channel, dy, g.pixel, g.line)
        dy += 16
      }
    }
    const above = max(0, row)
    const below = min(g.height, row + g.tall)
    const before = max(0, column)
    const behind = min(g.width, column + g.wide)
    for (; channel < quads; channel += 16) {
      let largest = f32x4.splat(-Infinity)
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
      let largest: f32 = -Infinity
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

const FILTER: i32 = 0
const IMAGES: i32 = 1
const AVERAGE: i32 = 2

/**
 * Adds the gradient of a depthwise convolution with `weights` [tall, wide, channels, multiplier] to the
 * weights (FILTER) or to the images, or factor dy to all values in each window, which is the gradient of
 * average pooling. dy is [windows, channels, multiplier].
 */
export function window_gradient(
  kind: i32,
  images: usize,
  weights: usize,
  factor: f32,
  dy: usize,
  windows: i32,
  multiplier: i32,
  geometry: usize,
): void {
  if (kind == FILTER) addGradient(FILTER, images, weights, 0, dy, windows, multiplier, geometry)
  else if (kind == IMAGES) addGradient(IMAGES, images, weights, 0, dy, windows, multiplier, geometry)
  else addGradient(AVERAGE, images, 0, factor, dy, windows, 1, geometry)
}

// @ts-ignore: decorator
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
