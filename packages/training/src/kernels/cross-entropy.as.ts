import { expOfDoubles } from './exp.as'
import { largest, lowAt, total } from './lanes.as'

/**
 * gradient = weight (softmax - target) for each row of logits [rows, classes], where target is
 * (1 - smoothing) one-hot + smoothing / classes. Values are doubles, rounded once.
 *
 * @param losses - gets two doubles for each row, whose loss is the logarithm of the first minus the second;
 *   followed by scratch memory for classes + 1 doubles
 * @param ignored - the gradient and the loss of rows with this label are 0
 */
export function cross_entropy(
  gradient: usize,
  logits: usize,
  labels: usize,
  losses: usize,
  rows: usize,
  classes: usize,
  ignored: i32,
  smoothing: f64,
  weight: f64,
): void {
  const bytes = classes << 2
  const shared = smoothing / <f64>classes
  const own = 1 - smoothing
  const exponentials = losses + (rows << 4)
  for (; losses < exponentials; losses += 16) {
    const label = load<i32>(labels)
    let sum: f64 = 1
    let expected: f64 = 0
    if (label == ignored) memory.fill(gradient, 0, bytes)
    else {
      const top = f64x2.splat(<f64>largest(logits, bytes))
      let sums = f64x2.splat(0)
      let rest = f64x2.splat(0)
      let p: usize = 0
      for (; p + 8 <= bytes; p += 8) {
        const score = f64x2.sub(lowAt<v128>(logits + p), top)
        const e = expOfDoubles(score)
        v128.store(exponentials + (p << 1), e)
        sums = f64x2.add(sums, e)
        rest = f64x2.add(rest, score)
      }
      if (p < bytes) {
        const first = i64x2(-1, 0)
        const score = v128.and(f64x2.sub(lowAt<f32>(logits + p), top), first)
        const e = v128.and(expOfDoubles(score), first)
        v128.store(exponentials + (p << 1), e)
        sums = f64x2.add(sums, e)
        rest = f64x2.add(rest, score)
      }
      sum = total(sums)
      const inverse = f64x2.splat(1 / sum)
      for (let p: usize = 0; p < bytes; p += 8) {
        const probability = f64x2.mul(v128.load(exponentials + (p << 1)), inverse)
        const slope = f64x2.mul(f64x2.sub(probability, f64x2.splat(shared)), f64x2.splat(weight))
        if (p + 8 <= bytes) v128.store64_lane(gradient + p, f32x4.demote_f64x2_zero(slope), 0)
        else store<f32>(gradient + p, <f32>f64x2.extract_lane(slope, 0))
      }
      const at = <usize>label << 2
      const probability = load<f64>(exponentials + (at << 1)) / sum
      store<f32>(gradient + at, <f32>((probability - shared - own) * weight))
      const score = <f64>load<f32>(logits + at) - f64x2.extract_lane(top, 0)
      // If the factor is 0, skip the product: 0 times a logit of -Infinity is NaN.
      if (own > 0) expected = own * score
      if (shared > 0) expected += shared * total(rest)
    }
    store<f64>(losses, sum)
    store<f64>(losses, expected, 8)
    logits += bytes
    gradient += bytes
    labels += 4
  }
}
