import { UsageError } from '../command-line.mjs'

/** @typedef {import('./simulation/cluster.ts').HostLink} HostLink */

/** Payload of an Ethernet frame of 1500 bytes with TCP's headers and timestamps, of all that it occupies. */
const GOODPUT = 1448 / 1538

/**
 * The rates are those of the standards; TCP can use GOODPUT of them. The latencies, between two programs
 * through one switch, are assumptions: 15 to 50 microseconds are usual for TCP.
 *
 * @type {Readonly<Record<string, HostLink>>}
 */
export const links = {
  '1GbE': ethernet(1, 50e-6),
  '10GbE': ethernet(10, 25e-6),
  '25GbE': ethernet(25, 20e-6),
  '100GbE': ethernet(100, 15e-6),
}

/**
 * @param {number} gigabits - per second
 * @param {number} latency - seconds
 * @returns {HostLink}
 */
function ethernet(gigabits, latency) {
  return { latency, bytesPerSecond: (gigabits * 1e9 * GOODPUT) / 8 }
}

/** @type {Readonly<Record<string, number>>} */
const perSecond = { us: 1e6, ms: 1e3 }
/** @type {Readonly<Record<string, number>>} */
const bytes = { MB: 1e6, GB: 1e9 }

/**
 * The link that a preset names, or a latency and a bandwidth such as `25us,1.2GB/s`.
 *
 * @param {string} text
 * @returns {HostLink}
 */
export function parseLink(text) {
  if (Object.hasOwn(links, text)) return /** @type {HostLink} */ (links[text])
  const number = String.raw`(\d+(?:\.\d+)?)`
  const form = new RegExp(`^${number}(us|ms),${number}(MB|GB)/s$`)
  const [, latency, unit = '', rate, rateUnit = ''] = form.exec(text) ?? []
  const bytesPerSecond = Number(rate) * (bytes[rateUnit] ?? NaN)
  if (bytesPerSecond > 0)
    return { latency: Number(latency) / (perSecond[unit] ?? NaN), bytesPerSecond }
  const known = Object.keys(links).join(', ')
  throw new UsageError(`--link: "${text}" is no link; write ${known} or 25us,1.2GB/s`)
}
