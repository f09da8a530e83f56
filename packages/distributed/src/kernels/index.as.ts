export * from './booleans.as'
export * from './halves.as'
export * from './numbers.as'
export * from './waits.as'

/** Overlapping ranges are fine, as with memmove. */
export function copy(to: usize, from: usize, bytes: usize): void {
  memory.copy(to, from, bytes)
}
