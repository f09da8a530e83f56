import type { Passes } from './passes.ts'

/**
 * Creates the storage of a context value for a browser, where code after an `await` does not see the
 * value.
 */
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
