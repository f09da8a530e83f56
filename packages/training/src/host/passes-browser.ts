import type { Passes } from './passes.ts'

/** Creates passes for a browser, where only synchronous code sees the current pass. */
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
