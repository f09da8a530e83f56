import { combine, scale, MAX, MIN, PRODUCT, SUM } from './elementwise.as'

export function float32_sum(out: usize, a: usize, b: usize, count: usize): void {
  combine<f32>(SUM, out, a, b, count)
}

export function float32_product(out: usize, a: usize, b: usize, count: usize): void {
  combine<f32>(PRODUCT, out, a, b, count)
}

export function float32_min(out: usize, a: usize, b: usize, count: usize): void {
  combine<f32>(MIN, out, a, b, count)
}

export function float32_max(out: usize, a: usize, b: usize, count: usize): void {
  combine<f32>(MAX, out, a, b, count)
}

export function float32_scale(at: usize, count: usize, factor: f64): void {
  scale<f32>(at, count, <f32>factor)
}
