// Parameter updates, four values at a time. Intermediate values are doubles, rounded once when stored, so
// the bits equal those of plain JavaScript. `count` may be any number.

import { highAt, join, lowAt, write } from './lanes.as'

@inline
function addScaledAt<T>(out: usize, a: usize, factor: v128, b: usize): void {
  const left = f64x2.add(lowAt<T>(a), f64x2.mul(factor, lowAt<T>(b)))
  const right = f64x2.add(highAt<T>(a), f64x2.mul(factor, highAt<T>(b)))
  write<T>(out, join(left, right))
}

/** out[i] = x[i] + factor y[i]; `out` may be `x` or `y`. */
export function add_scaled(out: usize, x: usize, factor: f64, y: usize, count: usize): void {
  const factors = f64x2.splat(factor)
  const bytes = count << 2
  let p: usize = 0
  for (; p + 16 <= bytes; p += 16) addScaledAt<v128>(out + p, x + p, factors, y + p)
  for (; p < bytes; p += 4) addScaledAt<f32>(out + p, x + p, factors, y + p)
}

/** Returns the next values of two parameters after a step of Adam. The moments are not rounded yet. */
@inline
function adamStep(
  value: v128,
  mean: v128,
  square: v128,
  rate: v128,
  scale: v128,
  epsilon: v128,
  keep: v128,
): v128 {
  const divisor = f64x2.add(f64x2.mul(f64x2.sqrt(square), scale), epsilon)
  return f64x2.sub(f64x2.mul(value, keep), f64x2.div(f64x2.mul(rate, mean), divisor))
}

/** b x + (1 - b) y */
@inline
function decay(b: v128, x: v128, rest: v128, y: v128): v128 {
  return f64x2.add(f64x2.mul(b, x), f64x2.mul(rest, y))
}

/** `adam` for four values, or one. */
@inline
function adamLanes<T>(
  next: usize,
  value: usize,
  gradient: usize,
  mean: usize,
  square: usize,
  nextMean: usize,
  nextSquare: usize,
  rate: v128,
  scale: v128,
  epsilon: v128,
  beta1: v128,
  rest1: v128,
  beta2: v128,
  rest2: v128,
  keep: v128,
): void {
  const lowG = lowAt<T>(gradient)
  const highG = highAt<T>(gradient)
  const lowM = decay(beta1, lowAt<T>(mean), rest1, lowG)
  const highM = decay(beta1, highAt<T>(mean), rest1, highG)
  const lowV = decay(beta2, lowAt<T>(square), f64x2.mul(rest2, lowG), lowG)
  const highV = decay(beta2, highAt<T>(square), f64x2.mul(rest2, highG), highG)
  const result = join(
    adamStep(lowAt<T>(value), lowM, lowV, rate, scale, epsilon, keep),
    adamStep(highAt<T>(value), highM, highV, rate, scale, epsilon, keep),
  )
  write<T>(nextMean, join(lowM, highM))
  write<T>(nextSquare, join(lowV, highV))
  write<T>(next, result)
}

/**
 * Runs a step of Adam: m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g g, next = keep value -
 * rate m / (sqrt(v) scale + epsilon). `rate` and `scale` include the bias corrections. `keep` includes the
 * weight decay.
 */
export function adam(
  next: usize,
  value: usize,
  gradient: usize,
  mean: usize,
  square: usize,
  nextMean: usize,
  nextSquare: usize,
  count: usize,
  rate: f64,
  scale: f64,
  epsilon: f64,
  beta1: f64,
  beta2: f64,
  keep: f64,
): void {
  const rates = f64x2.splat(rate)
  const scales = f64x2.splat(scale)
  const epsilons = f64x2.splat(epsilon)
  const b1 = f64x2.splat(beta1)
  const r1 = f64x2.splat(1 - beta1)
  const b2 = f64x2.splat(beta2)
  const r2 = f64x2.splat(1 - beta2)
  const k = f64x2.splat(keep)
  const bytes = count << 2
  let p: usize = 0
  for (; p + 16 <= bytes; p += 16) {
    adamLanes<v128>(next + p, value + p, gradient + p, mean + p, square + p, nextMean + p, nextSquare + p, rates, scales, epsilons, b1, r1, b2, r2, k)
  }
  for (; p < bytes; p += 4) {
    adamLanes<f32>(next + p, value + p, gradient + p, mean + p, square + p, nextMean + p, nextSquare + p, rates, scales, epsilons, b1, r1, b2, r2, k)
  }
}
