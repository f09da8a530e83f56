import { combine, scale, MAX, MIN, PRODUCT, SUM } from './elementwise.as'

export function float64_sum(out: usize, a: usize, b: usize, count: usize): void {
  combine<f64>(SUM, out, a, b, count)
}

export function float64_product(out: usize, a: usize, b: usize, count: usize): void {
  combine<f64>(PRODUCT, out, a, b, count)
}

export function float64_min(out: usize, a: usize, b: usize, count: usize): void {
  combine<f64>(MIN, out, a, b, count)
}

export function float64_max(out: usize, a: usize, b: usize, count: usize): void {
  combine<f64>(MAX, out, a, b, count)
}

export function float64_scale(at: usize, count: usize, factor: f64): void {
  scale<f64>(at, count, <f64>factor)
}
