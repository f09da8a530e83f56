/** A small seeded generator (mulberry32), for schedules that can be repeated. */
export interface Random {
  /** An integer from 0 to `limit` - 1. */
  below(limit: number): number
}

export function createRandom(seed: number): Random {
  let state = seed >>> 0
  return {
    below(limit) {
      state = (state + 0x6d2b79f5) >>> 0
      let mixed = Math.imul(state ^ (state >>> 15), state | 1)
      mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
      return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296) * limit)
    },
  }
}
