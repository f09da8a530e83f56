import { combineIntegers } from './elementwise.as'

export function int8_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combineIntegers<i8>(op, out, a, b, count)
}

export function uint8_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combineIntegers<u8>(op, out, a, b, count)
}

export function int32_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combineIntegers<i32>(op, out, a, b, count)
}

export function uint32_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combineIntegers<u32>(op, out, a, b, count)
}

export function int64_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combineIntegers<i64>(op, out, a, b, count)
}

export function uint64_combine(op: i32, out: usize, a: usize, b: usize, count: usize): void {
  combineIntegers<u64>(op, out, a, b, count)
}
