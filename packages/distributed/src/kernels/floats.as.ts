import { combineFloats, scale } from './elementwise.as'

export function float32_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combineFloats<f32>(op, out, a, b, count)
}

export function float64_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combineFloats<f64>(op, out, a, b, count)
}

export function float32_scale(at: usize, count: usize, factor: f64): void {
  scale<f32>(at, count, <f32>factor)
}

export function float64_scale(at: usize, count: usize, factor: f64): void {
  scale<f64>(at, count, factor)
}
