import { AsyncLocalStorage } from 'node:async_hooks'

/** The storage of a context value. Code that `run` calls or awaits can read the value. */
export interface Passes<T> {
  run<R>(value: T, run: () => R): R
  getStore(): T | undefined
}

export function createPasses<T>(): Passes<T> {
  return new AsyncLocalStorage<T>()
}
