import { median, significant } from '../figures.mjs'

/** @typedef {Readonly<Record<string, string | number | null>>} Measured - a row of a command */

/**
 * @typedef {object} Row - a figure of one case under each version
 * @property {string} name
 * @property {Record<string, number>} figures - by version
 * @property {Record<string, number>} ratios - to the best version, by version; 1 is the best
 */

/** Figures of which more is better; of all others, less is. */
const rates = /GBs$|PerSecond$|^gflops$|^speedup$/

/**
 * Medians over the rounds. Rows that agree in their words and their settings are one case.
 *
 * @param {ReadonlyMap<string, readonly (readonly Measured[])[]>} rounds - by version
 * @param {string} figure - the column that is compared
 * @returns {Row[]}
 */
export function compare(rounds, figure) {
  /** @type {Map<string, Map<string, number[]>>} */
  const cases = new Map()
  for (const [version, list] of rounds) {
    for (const row of list.flat()) {
      const value = row[figure]
      if (typeof value !== 'number') continue
      const name = nameOf(row)
      const samples = cases.get(name) ?? new Map()
      samples.set(version, [...(samples.get(version) ?? []), value])
      cases.set(name, samples)
    }
  }
  return [...cases].map(([name, samples]) => {
    const medians = [...samples].map(([version, values]) => ({ version, value: median(values) }))
    const values = medians.map(({ value }) => value)
    const isRate = rates.test(figure)
    const best = isRate ? Math.max(...values) : Math.min(...values)
    const ratio = (/** @type {number} */ value) => (isRate ? best / value : value / best)
    return {
      name,
      figures: Object.fromEntries(
        medians.map(({ version, value }) => [version, significant(value)]),
      ),
      ratios: Object.fromEntries(
        medians.map(({ version, value }) => [version, significant(ratio(value), 3)]),
      ),
    }
  })
}

/** The columns that tell what was measured, and not how fast it was. */
const settings = ['ranks', 'bytes', 'hosts', 'layers', 'width', 'tokens', 'megabytes']

/** @param {Measured} row */
function nameOf(row) {
  return Object.entries(row)
    .flatMap(([key, value]) => {
      if (typeof value === 'string') return [value]
      return settings.includes(key) ? [`${value} ${key}`] : []
    })
    .join(' ')
}
