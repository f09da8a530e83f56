import type { Passes } from './passes.ts'

/** A browser cannot follow what is awaited: only synchronous code sees the pass. */
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
