/** A stream of uniform random 32-bit integers. */
export type Generator = () => number

/**
 * Returns a generator whose stream depends only on `name` and `seed`, so that every rank and every
 * layout draws the same numbers for the same thing. A hash of both seeds an xoshiro128**.
 */
export function generator(name: string, seed: number): Generator {
  return xoshiro128(hash128(`${String(seed)}:${name}`))
}

/**
 * xoshiro128** (Blackman & Vigna, 2018), from a state that is not all zeros. Uses only integer
 * arithmetic: the same bits on every machine and version of Node.
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

/** Uniform in [0, 1), 24 bits: exact in float32. */
export function uniform(next: Generator): number {
  return (next() >>> 8) / 0x1000000
}

/**
 * A random function of a counter: draws 32-bit integers in any order. It depends only on `name` and
 * `seed` (Murmur3's finalizer, twice, over a keyed counter).
 */
export function counterHash(name: string, seed: number): (counter: number) => number {
  const [a, b] = hash128(`${String(seed)}:${name}`)
  return (counter) => mix(mix(Math.imul(counter, 0x9e3779b1) ^ a) + b) >>> 0
}

/** Four lanes of FNV-1a with different offsets, each finished with Murmur3's mixer. */
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

function mix(hash: number): number {
  let h = hash
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return h ^ (h >>> 16)
}

function rotateLeft(x: number, bits: number): number {
  return (x << bits) | (x >>> (32 - bits))
}
