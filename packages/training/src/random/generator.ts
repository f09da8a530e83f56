/** A stream of uniform random 32-bit integers. */
export type Generator = () => number

/**
 * Returns a generator whose numbers depend only on `name` and `seed`, so that all ranks draw the same
 * numbers in every mesh. It is xoshiro128**, started from a hash of `name` and `seed`.
 */
export function generator(name: string, seed: number): Generator {
  return xoshiro128(hash128(`${seed}:${name}`))
}

/**
 * Returns an xoshiro128** generator (Blackman & Vigna, 2018); the state must not be all zeros. It
 * uses only integer arithmetic, so every machine and Node version computes the same bits.
 */
export function xoshiro128([a, b, c, d]: readonly [number, number, number, number]): Generator {
  return () => {
    const result = Math.imul(rotateLeft(Math.imul(b, 5), 7), 9) >>> 0
    const t = b << 9
    c ^= a
    d ^= b
    b ^= c
    a ^= d
    c ^= t
    d = rotateLeft(d, 11)
    return result
  }
}

/** Draws a number from [0, 1) with 24 random bits, which float32 represents exactly. */
export function uniform(next: Generator): number {
  return (next() >>> 8) / 0x1000000
}

/**
 * Returns a random function from a counter to a 32-bit integer, so that values can be drawn in any order.
 * It depends only on `name` and `seed`, and applies Murmur3's finalizer twice.
 */
export function counterHash(name: string, seed: number): (counter: number) => number {
  const [a, b] = hash128(`${seed}:${name}`)
  return (counter) => mix(mix(Math.imul(counter, 0x9e3779b1) ^ a) + b) >>> 0
}

/** Returns 128 bits: four FNV-1a hashes with different offsets, each followed by Murmur3's finalizer. */
function hash128(text: string): [number, number, number, number] {
  const lane = (offset: number) => {
    let hash = 0x811c9dc5 ^ offset
    for (let i = 0; i < text.length; i++) {
      hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
    }
    return mix(hash)
  }
  return [lane(0), lane(0x9e3779b9), lane(0x3c6ef372), lane(0xdaa66d2b)]
}

function mix(hash: number) {
  let h = hash
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return h ^ (h >>> 16)
}

function rotateLeft(x: number, bits: number) {
  return (x << bits) | (x >>> (32 - bits))
}
