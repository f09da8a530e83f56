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

/** Sets a word to 0 and returns whether it was 1. If several threads call it at once, one gets true. */
export function takeFlag(word: usize): bool {
  return atomic.load<i32>(word) == 1 && atomic.xchg<i32>(word, 0) == 1
}

/** Bytes of a header: sequence, three words of the fingerprint, and the offset of the buffer. */
const HEADER: usize = 20

/**
 * Publishes a buffer in a rank's slots: writes the header of an epoch, then the epoch, and counts the
 * publication. `line` is the address of the epoch, which the headers of two epochs follow.
 */
export function publish(
  line: usize,
  published: usize,
  epoch: i32,
  sequence: i32,
  kind: i32,
  root: i32,
  count: i32,
  at: i32,
): void {
  const header = line + 4 + (epoch & 1) * HEADER
  store<i32>(header, sequence)
  store<i32>(header, kind, 4)
  store<i32>(header, root, 8)
  store<i32>(header, count, 12)
  store<i32>(header, at, 16)
  atomic.store<i32>(line, epoch)
  atomic.add<i32>(published, 1)
}

/**
 * Polls at most `looks` times whether a rank has entered an epoch. Returns 0 if it has not, 1 if its
 * header is equal, and 2 if it differs.
 */
export function awaitHeader(
  line: usize,
  looks: i32,
  epoch: i32,
  sequence: i32,
  kind: i32,
  root: i32,
  count: i32,
): i32 {
  if (!awaitCount(line, epoch, looks)) return 0
  const header = line + 4 + (epoch & 1) * HEADER
  const isEqual =
    load<i32>(header) == sequence &&
    load<i32>(header, 4) == kind &&
    load<i32>(header, 8) == root &&
    load<i32>(header, 12) == count
  return isEqual ? 1 : 2
}
