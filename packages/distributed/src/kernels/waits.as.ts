/** Polls at most `looks` times until a word that counts modulo 2^32 reaches `count`. */
export function awaitCount(word: usize, count: i32, looks: i32): bool {
  for (; looks > 0; looks--) {
    if (atomic.load<i32>(word) - count >= 0) return true
  }
  return false
}

/**
 * Polls, at most `rounds` times, words that other threads or processes write, until one has changed
 * since the last call. The table has two words for each: its address, and the last value seen,
 * which is updated here.
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
