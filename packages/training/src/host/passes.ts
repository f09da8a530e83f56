import { AsyncLocalStorage } from 'node:async_hooks'

/** A context value that is visible to all functions that `run` calls or awaits. */
export interface Passes<T> {
  run<R>(value: T, run: () => R): R
  getStore(): T | undefined
}

export function createPasses<T>(): Passes<T> {
  return new AsyncLocalStorage<T>()
}
