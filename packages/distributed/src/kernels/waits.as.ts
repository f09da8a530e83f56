/** Polls a counter modulo 2^32 at most `looks` times, until it reaches `count`. */
export function awaitCount(word: usize, count: i32, looks: i32): bool {
  for (; looks > 0; looks--) {
    if (atomic.load<i32>(word) - count >= 0) return true
  }
  return false
}

/**
 * Polls words that other threads or processes write, at most `rounds` times, until a word has
 * changed since the last call. For each polled word, the table has an address and the value last
 * seen. This function updates the value.
 */
export function awaitChange(table: usize, count: i32, rounds: i32): bool {
  for (; rounds > 0; rounds--) {
    let hasChanged = false
    let entry = table
    for (let i = 0; i < count; i++) {
      const value = atomic.load<i32>(load<u32>(entry))
      if (value != load<i32>(entry, 4)) {
        store<i32>(entry, value, 4)
        hasChanged = true
      }
      entry += 8
    }
    if (hasChanged) return true
  }
  return false
}
