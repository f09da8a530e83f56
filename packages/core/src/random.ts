/**
 * A source of numbers from 0 to below 1 (mulberry32), for what must be possible to repeat: the same numbers
 * for the same seed. It is neither for secrets nor for statistics.
 *
 * @param seed - an integer; its low 32 bits count
 */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
