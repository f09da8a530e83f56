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
 * @typedef {{ upTo?: number, algorithm: string }[]} Thresholds - the form that TSRUN_TUNING reads
 */

/** An algorithm stays the best for the next size until another takes less than this share of its time. */
const CLEARLY = 0.95

/** The names of the transports in the table. */
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
 * The threshold between two sizes with different winners is their geometric mean.
 *
 * @param {readonly Pick<Best, 'bytes' | 'algorithm'>[]} bests - of one operation, sizes ascending
 * @returns {Thresholds}
 */
export function thresholdsOf(bests) {
  /** @type {Thresholds} */
  const thresholds = []
  for (const [i, { bytes, algorithm }] of bests.entries()) {
    const next = bests[i + 1]
    if (next === undefined) thresholds.push({ algorithm })
    else if (next.algorithm !== algorithm) {
      thresholds.push({ upTo: Math.round(Math.sqrt(bytes * next.bytes)), algorithm })
    }
  }
  return thresholds
}

/**
 * The contents of the file that TSRUN_TUNING names.
 *
 * @param {readonly Best[]} bests
 * @param {object} about - human-readable: what was measured, and where
 */
export function tuningTable(bests, about) {
  /** @type {Record<string, Record<string, Thresholds>>} */
  const file = {}
  for (const { op, transport } of bests) {
    const medium = media[/** @type {keyof typeof media} */ (transport)]
    const series = bests.filter((best) => best.op === op && best.transport === transport)
    file[medium] = { ...file[medium], [op]: thresholdsOf(series) }
  }
  return { version: 1, about, ...file }
}
