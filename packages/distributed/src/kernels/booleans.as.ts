import { BAND, BOR, BXOR, MIN, PRODUCT } from './vectors.as'

// One byte each. Any value except 0 is true; results are 0 or 1.

// @ts-ignore: decorator
@inline
function truth(x: v128): v128 {
  return v128.and(i8x16.ne(x, i8x16.splat(0)), i8x16.splat(1))
}

// @ts-ignore: decorator
@inline
function combineTruths(op: i32, a: v128, b: v128): v128 {
  if (op == BAND) return v128.and(truth(a), truth(b))
  if (op == BXOR) return v128.xor(truth(a), truth(b))
  return truth(v128.or(a, b))
}

// @ts-ignore: decorator
@inline
function combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  let left = count
  for (; left >= 16; left -= 16) {
    v128.store(out, combineTruths(op, v128.load(a), v128.load(b)))
    out += 16
    a += 16
    b += 16
  }
  for (; left > 0; left--) {
    const one = combineTruths(op, v128.load_splat<u8>(a), v128.load_splat<u8>(b))
    v128.store_lane<u8>(out, one, 0)
    out++
    a++
    b++
  }
}

export function bool_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  if (op == BAND || op == PRODUCT || op == MIN) combine(BAND, out, a, b, count)
  else if (op == BXOR) combine(BXOR, out, a, b, count)
  else combine(BOR, out, a, b, count)
}
