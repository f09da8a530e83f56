import { significant } from '../figures.mjs'

/**
 * @typedef {object} Timing - of one algorithm
 * @property {string} op
 * @property {string} transport
 * @property {number} bytes - of the whole buffer
 * @property {string} algorithm
 * @property {number} us - median, microseconds
 *
 * @typedef {object} Best - the algorithm for one size
 * @property {string} op
 * @property {string} transport
 * @property {number} bytes
 * @property {string} algorithm
 * @property {number} us
 * @property {{ algorithm: string, ratio: number }[]} others - times as multiples of the best one
 *
 * @typedef {{ upTo?: number, algorithm: string }[]} Ladder - the form that TSRUN_TUNING reads
 */

/** An algorithm that was the best for the size before stays so until another is faster by this. */
const CLEARLY = 0.95

/** What the file calls the ways on which ranks reach each other. */
const media = { tcp: 'sockets', 'shared-memory': 'sharedMemory' }

/**
 * The best algorithm for each operation, transport and size, sizes ascending.
 *
 * @param {readonly Timing[]} timings
 * @returns {Best[]}
 */
export function bestBySize(timings) {
  /** @type {Map<string, Timing[]>} */
  const bySize = new Map()
  for (const timing of timings) {
    const key = `${timing.op} ${timing.transport} ${timing.bytes}`
    bySize.set(key, [...(bySize.get(key) ?? []), timing])
  }
  /** @type {Map<string, string>} */
  const before = new Map()
  return [...bySize.values()].map((candidates) => {
    const sorted = candidates.toSorted((a, b) => a.us - b.us)
    const [fastest] = /** @type {[Timing]} */ (sorted)
    const series = `${fastest.op} ${fastest.transport}`
    const kept = sorted.find(({ algorithm }) => algorithm === before.get(series))
    const best = kept !== undefined && fastest.us > CLEARLY * kept.us ? kept : fastest
    before.set(series, best.algorithm)
    const others = sorted
      .filter((timing) => timing !== best)
      .map(({ algorithm, us }) => ({ algorithm, ratio: significant(us / best.us, 3) }))
    return { ...best, others }
  })
}

/**
 * Half-way (geometrically) between two sizes with different winners lies the threshold.
 *
 * @param {readonly Pick<Best, 'bytes' | 'algorithm'>[]} bests - of one operation, sizes ascending
 * @returns {Ladder}
 */
export function ladderOf(bests) {
  /** @type {Ladder} */
  const ladder = []
  for (const [i, { bytes, algorithm }] of bests.entries()) {
    const next = bests[i + 1]
    if (next === undefined) ladder.push({ algorithm })
    else if (next.algorithm !== algorithm) {
      ladder.push({ upTo: Math.round(Math.sqrt(bytes * next.bytes)), algorithm })
    }
  }
  return ladder
}

/**
 * The file that TSRUN_TUNING names.
 *
 * @param {readonly Best[]} bests
 * @param {object} about - for people: what was measured, and where
 */
export function tuningFile(bests, about) {
  /** @type {Record<string, Record<string, Ladder>>} */
  const file = {}
  for (const { op, transport } of bests) {
    const medium = media[/** @type {keyof typeof media} */ (transport)]
    const series = bests.filter((best) => best.op === op && best.transport === transport)
    file[medium] = { ...file[medium], [op]: ladderOf(series) }
  }
  return { version: 1, about, ...file }
}
