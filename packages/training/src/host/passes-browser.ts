import type { Passes } from './passes.ts'

/** A page cannot follow what is awaited: it sees the pass of synchronous code alone. */
export function createPasses<T>(): Passes<T> {
  let current: T | undefined
  return {
    run(value, run) {
      const before = current
      current = value
      try {
        return run()
      } finally {
        current = before
      }
    },
    getStore: () => current,
  }
}
