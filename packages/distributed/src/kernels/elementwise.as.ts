// Element by element over linear memory, in 64-byte strides of four independent vectors: enough
// in flight to keep memory busy. WebAssembly loads need no alignment, so only the tail is scalar.
// Loops count elements instead of comparing addresses: a buffer may end at 4 GiB, where they wrap.

export const SUM: i32 = 0
export const PRODUCT: i32 = 1
export const MIN: i32 = 2
export const MAX: i32 = 3

// `op` is a constant at every call: after inlining, the comparisons are gone.

// @ts-ignore: decorator
@inline
function combineVectors<T>(op: i32, a: v128, b: v128): v128 {
  if (op == SUM) return v128.add<T>(a, b)
  if (op == PRODUCT) return v128.mul<T>(a, b)
  if (op == MIN) return v128.min<T>(a, b)
  return v128.max<T>(a, b)
}

// @ts-ignore: decorator
@inline
function combineScalars<T>(op: i32, a: T, b: T): T {
  if (op == SUM) return <T>(a + b)
  if (op == PRODUCT) return <T>(a * b)
  if (op == MIN) return min<T>(a, b)
  return max<T>(a, b)
}

/** out[i] = a[i] op b[i]; `out` may be `a` or `b`. */
// @ts-ignore: decorator
@inline
export function combine<T>(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  const stride: usize = 64 / sizeof<T>()
  let left = count
  for (; left >= stride; left -= stride) {
    const first = combineVectors<T>(op, v128.load(a), v128.load(b))
    const second = combineVectors<T>(op, v128.load(a, 16), v128.load(b, 16))
    const third = combineVectors<T>(op, v128.load(a, 32), v128.load(b, 32))
    const fourth = combineVectors<T>(op, v128.load(a, 48), v128.load(b, 48))
    v128.store(out, first)
    v128.store(out, second, 16)
    v128.store(out, third, 32)
    v128.store(out, fourth, 48)
    out += 64
    a += 64
    b += 64
  }
  for (; left > 0; left--) {
    store<T>(out, combineScalars<T>(op, load<T>(a), load<T>(b)))
    out += sizeof<T>()
    a += sizeof<T>()
    b += sizeof<T>()
  }
}

/** x[i] *= factor, for floating point. */
// @ts-ignore: decorator
@inline
export function scale<T>(at: usize, count: usize, factor: T): void {
  const stride: usize = 64 / sizeof<T>()
  const factors = v128.splat<T>(factor)
  let left = count
  for (; left >= stride; left -= stride) {
    v128.store(at, v128.mul<T>(v128.load(at), factors))
    v128.store(at, v128.mul<T>(v128.load(at, 16), factors), 16)
    v128.store(at, v128.mul<T>(v128.load(at, 32), factors), 32)
    v128.store(at, v128.mul<T>(v128.load(at, 48), factors), 48)
    at += 64
  }
  for (; left > 0; left--) {
    store<T>(at, <T>(load<T>(at) * factor))
    at += sizeof<T>()
  }
}
