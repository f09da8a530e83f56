// What the samples of a soak say about growth.

/**
 * A survivor is a rank that is never lost while others are.
 *
 * @typedef {'launcher' | 'rank' | 'survivor'} Process
 */

/**
 * @typedef {object} Sample - what a process uses at one moment
 * @property {Process} who
 * @property {number} at - seconds since the training began
 * @property {number} age - seconds since the process was started
 * @property {number} mib - resident memory
 * @property {number} threads
 * @property {number} descriptors
 * @property {number} maps - of its address space
 */

const quantities = /** @type {const} */ (['mib', 'threads', 'descriptors', 'maps'])
/** Seconds: what starts and warms up before is not growth. */
const WARM_UP = 60
/** Seconds: ranks are compared at the same age, which most of them reach under faults. */
const AGES = { from: 10, to: 20 }
/** How much more is not growth, as a share. */
const GROWTH = 0.05
/** Numbers of these are small, so that one more is no growth. */
const ONE_MORE = new Set(['threads', 'descriptors'])
/** Samples of each half that a comparison needs. */
const FEWEST = 20

/** @param {Sample} sample */
function isComparable({ who, age }) {
  return who !== 'rank' || (age >= AGES.from && age <= AGES.to)
}

/**
 * The value below which a quarter of the samples lie. The memory of a process goes up and down with the
 * young generation of its heap; what it never gives back is in its low values.
 *
 * @param {readonly Sample[]} samples
 * @param {(typeof quantities)[number]} quantity
 */
function lowerQuartile(samples, quantity) {
  const sorted = samples.map((one) => one[quantity]).toSorted((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 4)] ?? NaN
}

/**
 * Compares the second half of the time after the warm-up with the first.
 *
 * @param {readonly Sample[]} samples
 * @param {readonly Process[]} processes - those whose samples there have to be
 * @param {number} spare - memory maps that may be added
 * @returns {string[]} what has grown, or could not be compared
 */
export function findGrowth(samples, processes, spare = 0) {
  const late = samples.filter((one) => one.at > WARM_UP && isComparable(one))
  const half = (WARM_UP + Math.max(...samples.map(({ at }) => at))) / 2
  return processes.flatMap((who) => {
    const own = late.filter((one) => one.who === who)
    const [first, second] = [own.filter(({ at }) => at < half), own.filter(({ at }) => at >= half)]
    if (Math.min(first.length, second.length) < FEWEST) {
      return [`${first.length} and ${second.length} samples of a ${who} are too few to compare`]
    }
    return quantities.flatMap((quantity) => {
      const [before, after] = [lowerQuartile(first, quantity), lowerQuartile(second, quantity)]
      const more = quantity === 'maps' ? spare : ONE_MORE.has(quantity) ? 1 : 0
      const bound = Math.max(before * (1 + GROWTH), before + more)
      if (after <= bound) return []
      return [`${quantity} of a ${who} grew from ${before.toFixed(0)} to ${after.toFixed(0)}`]
    })
  })
}

/**
 * By minute: the lower quartile of what comparable processes use.
 *
 * @param {readonly Sample[]} samples
 * @returns {string[][]} rows of a table
 */
export function tableOf(samples) {
  const rows = [['minute', 'process', 'MiB', 'threads', 'descriptors', 'maps']]
  const minutes = new Set(samples.map(({ at }) => Math.floor(at / 60)))
  for (const minute of minutes) {
    for (const who of new Set(samples.map((one) => one.who))) {
      const own = samples.filter(
        (one) => one.who === who && Math.floor(one.at / 60) === minute && isComparable(one),
      )
      if (own.length === 0) continue
      const figures = quantities.map((quantity) => lowerQuartile(own, quantity).toFixed(0))
      rows.push([String(minute + 1), who, ...figures])
    }
  }
  return rows
}
