export * from './halves.as'
export * from './numbers.as'
export * from './waits.as'

/** Copies bytes; the ranges may overlap. */
export function copy(to: usize, from: usize, bytes: usize): void {
  memory.copy(to, from, bytes)
}
