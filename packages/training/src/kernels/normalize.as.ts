// Layer norm and RMSNorm of floats. Sums are doubles, and a mean is the sum of two floats, so that a large
// mean costs no precision. The bits of a row do not depend on other rows.
import { high, highAt, low, lowAt, read, total, write } from './lanes.as'

/** Bytes of the statistics of a row: the two floats of its mean, and 1 / its standard deviation. */
const STATISTICS: usize = 12

/** x - mean */
@inline
function centered<T>(x: usize, mean: v128, rest: v128): v128 {
  const y = f32x4.sub(f32x4.sub(read<T>(x), mean), rest)
  return isVector<T>() ? y : v128.and(y, i32x4(-1, 0, 0, 0))
}

/** (x - mean) inverse */
@inline
function normal<T>(x: usize, mean: v128, rest: v128, inverse: v128): v128 {
  return f32x4.mul(centered<T>(x, mean, rest), inverse)
}

/** Adds the first two floats of a vector to the last two, in doubles. */
@inline
function folded(x: v128): v128 {
  return f64x2.add(low(x), high(x))
}

/** Adds values to doubles in memory. */
@inline
function addTo<T>(sums: usize, x: v128): void {
  if (isVector<T>()) {
    v128.store(sums, f64x2.add(v128.load(sums), low(x)))
    v128.store(sums, f64x2.add(v128.load(sums, 16), high(x)), 16)
  } else {
    v128.store64_lane(sums, f64x2.add(v128.load64_zero(sums), low(x)), 0)
  }
}

/** The number of values that `forward` processes together, so that they stay in the first-level cache. */
const CHUNK: usize = 2048

function forward<T>(
  out: usize,
  statistics: usize,
  x: usize,
  scale: usize,
  shift: usize,
  rows: usize,
  width: usize,
  epsilon: f64,
): void {
  const bytes = width << 2
  const most = max<usize>(1, CHUNK / width)
  while (rows > 0) {
    const part = min(rows, most)
    // Use separate loops, so that the divisions for one row do not delay the sums of the next row.
    for (let row: usize = 0; row < part; row++) {
      writeMean<T>(statistics + row * STATISTICS, x + row * bytes, width, shift != 0)
    }
    for (let row: usize = 0; row < part; row++) {
      writeInverse<T>(statistics + row * STATISTICS, x + row * bytes, width, epsilon)
    }
    for (let row: usize = 0; row < part; row++) {
      const mean = v128.load32_splat(statistics)
      const rest = v128.load32_splat(statistics, 4)
      const inverse = v128.load32_splat(statistics, 8)
      for (let p: usize = 0; p < bytes; p += sizeof<T>()) {
        const y = f32x4.mul(normal<T>(x + p, mean, rest, inverse), read<T>(scale + p))
        write<T>(out + p, shift ? f32x4.add(y, read<T>(shift + p)) : y)
      }
      x += bytes
      out += bytes
      statistics += STATISTICS
    }
    rows -= part
  }
}

@inline
function writeMean<T>(statistics: usize, x: usize, width: usize, centers: bool): void {
  let a = f64x2.splat(0)
  let b = a
  if (centers) {
    for (let p: usize = 0; p < width << 2; p += sizeof<T>()) {
      a = f64x2.add(a, lowAt<T>(x + p))
      b = f64x2.add(b, highAt<T>(x + p))
    }
  }
  const mean = total(f64x2.add(a, b)) / <f64>width
  store<f32>(statistics, <f32>mean)
  store<f32>(statistics, <f32>(mean - <f64>(<f32>mean)), 4)
}

@inline
function writeInverse<T>(statistics: usize, x: usize, width: usize, epsilon: f64): void {
  const mean = v128.load32_splat(statistics)
  const rest = v128.load32_splat(statistics, 4)
  let a = f64x2.splat(0)
  let b = a
  for (let p: usize = 0; p < width << 2; p += sizeof<T>()) {
    const y = centered<T>(x + p, mean, rest)
    a = f64x2.add(a, f64x2.mul(low(y), low(y)))
    b = f64x2.add(b, f64x2.mul(high(y), high(y)))
  }
  const variance = total(f64x2.add(a, b)) / <f64>width
  store<f32>(statistics, <f32>(1 / Math.sqrt(variance + epsilon)), 8)
}

/**
 * out = (x - mean) / sqrt(variance + epsilon) scale + shift for each row of x [rows, width]. A `shift` of 0
 * stands for no shift and a mean of 0.
 *
 * @param statistics - gets three floats for each row
 */
export function normalize(
  out: usize,
  statistics: usize,
  x: usize,
  scale: usize,
  shift: usize,
  rows: usize,
  width: usize,
  epsilon: f64,
): void {
  if (width & 3) forward<f32>(out, statistics, x, scale, shift, rows, width, epsilon)
  else forward<v128>(out, statistics, x, scale, shift, rows, width, epsilon)
}

/** The number of rows whose floats `backward` sums before it adds them to doubles. */
const ROWS: usize = 8

/** The bytes of a row whose floats `backward` sums before it adds them to doubles. */
const BLOCK: usize = 256

function backward<T>(
  dx: usize,
  dScale: usize,
  dShift: usize,
  dy: usize,
  x: usize,
  scale: usize,
  statistics: usize,
  sums: usize,
  rows: usize,
  width: usize,
  residual: usize,
): void {
  const bytes = width << 2
  const shifts = sums + (bytes << 1)
  memory.fill(sums, 0, bytes << 2)
  while (rows > 0) {
    const part = min(rows, ROWS)
    memory.fill(dScale, 0, bytes)
    if (dShift) memory.fill(dShift, 0, bytes)
    for (let row = part; row > 0; row--) {
      const mean = v128.load32_splat(statistics)
      const rest = v128.load32_splat(statistics, 4)
      const inverse = v128.load32_splat(statistics, 8)
      let along = f64x2.splat(0)
      let aside = f64x2.splat(0)
      for (let p: usize = 0; p < bytes; ) {
        const end = min(bytes, p + BLOCK)
        let products = f32x4.splat(0)
        let slopes = f32x4.splat(0)
        for (; p < end; p += sizeof<T>()) {
          const d = read<T>(dy + p)
          const y = normal<T>(x + p, mean, rest, inverse)
          const slope = f32x4.mul(d, read<T>(scale + p))
          write<T>(dScale + p, f32x4.add(read<T>(dScale + p), f32x4.mul(d, y)))
          if (dShift) write<T>(dShift + p, f32x4.add(read<T>(dShift + p), d))
          products = f32x4.add(products, f32x4.mul(slope, y))
          slopes = f32x4.add(slopes, slope)
        }
        along = f64x2.add(along, folded(products))
        aside = f64x2.add(aside, folded(slopes))
      }
      const a = f32x4.splat(<f32>(total(along) / <f64>width))
      const b = f32x4.splat(dShift ? <f32>(total(aside) / <f64>width) : 0)
      for (let p: usize = 0; p < bytes; p += sizeof<T>()) {
        const y = normal<T>(x + p, mean, rest, inverse)
        const slope = f32x4.mul(read<T>(dy + p), read<T>(scale + p))
        const d = f32x4.mul(inverse, f32x4.sub(f32x4.sub(slope, b), f32x4.mul(y, a)))
        write<T>(dx + p, residual ? f32x4.add(read<T>(residual + p), d) : d)
      }
      x += bytes
      dy += bytes
      dx += bytes
      if (residual) residual += bytes
      statistics += STATISTICS
    }
    for (let p: usize = 0; p < bytes; p += sizeof<T>()) {
      addTo<T>(sums + (p << 1), read<T>(dScale + p))
      if (dShift) addTo<T>(shifts + (p << 1), read<T>(dShift + p))
    }
    rows -= part
  }
  for (let p: usize = 0; p < bytes; p += 4) {
    store<f32>(dScale + p, <f32>load<f64>(sums + (p << 1)))
    if (dShift) store<f32>(dShift + p, <f32>load<f64>(shifts + (p << 1)))
  }
}

/**
 * The gradients of `normalize`. Sums the gradients of `scale` and `shift` in row order, those of eight
 * rows as floats. A `dShift` of 0 stands for no shift.
 *
 * @param sums - scratch memory for 2 x width doubles
 * @param residual - the address of values that are added to dx, or 0; may be `dx`
 */
export function normalize_gradients(
  dx: usize,
  dScale: usize,
  dShift: usize,
  dy: usize,
  x: usize,
  scale: usize,
  statistics: usize,
  sums: usize,
  rows: usize,
  width: usize,
  residual: usize,
): void {
  if (width & 3) {
    backward<f32>(dx, dScale, dShift, dy, x, scale, statistics, sums, rows, width, residual)
  } else backward<v128>(dx, dScale, dShift, dy, x, scale, statistics, sums, rows, width, residual)
}
