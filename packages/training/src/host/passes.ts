import { AsyncLocalStorage } from 'node:async_hooks'

/** What everything that `run` calls or awaits sees. */
export interface Passes<T> {
  run<R>(value: T, run: () => R): R
  getStore(): T | undefined
}

export function createPasses<T>(): Passes<T> {
  return new AsyncLocalStorage<T>()
}
