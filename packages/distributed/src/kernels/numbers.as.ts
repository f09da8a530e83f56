import { combineHalves, scaleHalves } from './halves.as'
import { ALL, ANY, BAND, BXOR, combineVectors, MIN, ODD, PRODUCT } from './vectors.as'

// Elementwise loops over linear memory. Each step handles 64 bytes in four independent vectors,
// which is enough parallelism to saturate the memory. WebAssembly loads need no alignment. The
// remaining elements use the same instructions, with one element per vector. Loops count elements
// instead of comparing addresses, because addresses wrap if a buffer ends at 4 GiB.

@inline
function combineElements<T>(op: i32, a: v128, b: v128): v128 {
  if (sizeof<T>() == 2) return combineHalves<T>(op, a, b)
  else return combineVectors<T>(op, a, b)
}

/** out[i] = a[i] op b[i]; `out` may be `a` or `b`. */
@inline
function combine<T>(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  const stride: usize = 64 / sizeof<T>()
  let left = count
  for (; left >= stride; left -= stride) {
    const first = combineElements<T>(op, v128.load(a), v128.load(b))
    const second = combineElements<T>(op, v128.load(a, 16), v128.load(b, 16))
    const third = combineElements<T>(op, v128.load(a, 32), v128.load(b, 32))
    const fourth = combineElements<T>(op, v128.load(a, 48), v128.load(b, 48))
    v128.store(out, first)
    v128.store(out, second, 16)
    v128.store(out, third, 32)
    v128.store(out, fourth, 48)
    out += 64
    a += 64
    b += 64
  }
  for (; left > 0; left--) {
    const one = combineElements<T>(op, v128.load_splat<T>(a), v128.load_splat<T>(b))
    v128.store_lane<T>(out, one, 0)
    out += sizeof<T>()
    a += sizeof<T>()
    b += sizeof<T>()
  }
}

@inline
function scaleElements<T>(x: v128, factors: v128): v128 {
  if (sizeof<T>() == 2) return scaleHalves<T>(x, factors)
  else return v128.mul<T>(x, factors)
}

/** x[i] *= factor, for floating point. */
@inline
function scale<T>(at: usize, count: usize, factor: f64): void {
  const stride: usize = 64 / sizeof<T>()
  const factors = sizeof<T>() == 8 ? f64x2.splat(factor) : f32x4.splat(<f32>factor)
  let left = count
  for (; left >= stride; left -= stride) {
    v128.store(at, scaleElements<T>(v128.load(at), factors))
    v128.store(at, scaleElements<T>(v128.load(at, 16), factors), 16)
    v128.store(at, scaleElements<T>(v128.load(at, 32), factors), 32)
    v128.store(at, scaleElements<T>(v128.load(at, 48), factors), 48)
    at += 64
  }
  for (; left > 0; left--) {
    v128.store_lane<T>(at, scaleElements<T>(v128.load_splat<T>(at), factors), 0)
    at += sizeof<T>()
  }
}

export function float32_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combine<f32>(op, out, a, b, count)
}

export function float64_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combine<f64>(op, out, a, b, count)
}

export function float16_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combine<u16>(op, out, a, b, count)
}

export function bfloat16_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combine<i16>(op, out, a, b, count)
}

export function float32_scale(at: usize, count: usize, factor: f64): void {
  scale<f32>(at, count, factor)
}

export function float64_scale(at: usize, count: usize, factor: f64): void {
  scale<f64>(at, count, factor)
}

export function float16_scale(at: usize, count: usize, factor: f64): void {
  scale<u16>(at, count, factor)
}

export function bfloat16_scale(at: usize, count: usize, factor: f64): void {
  scale<i16>(at, count, factor)
}

export function int8_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combine<i8>(op, out, a, b, count)
}

export function uint8_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combine<u8>(op, out, a, b, count)
}

export function int32_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combine<i32>(op, out, a, b, count)
}

export function uint32_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combine<u32>(op, out, a, b, count)
}

export function int64_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combine<i64>(op, out, a, b, count)
}

export function uint64_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combine<u64>(op, out, a, b, count)
}

export function bool_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  if (op == BAND || op == PRODUCT || op == MIN) combine<u8>(ALL, out, a, b, count)
  else if (op == BXOR) combine<u8>(ODD, out, a, b, count)
  else combine<u8>(ANY, out, a, b, count)
}
