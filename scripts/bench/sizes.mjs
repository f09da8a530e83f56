import { UsageError } from './errors.mjs'

/** @type {Readonly<Record<string, number>>} */
const units = {
  b: 1,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
}

/**
 * Bytes of a size such as `4KiB`, `1.5 MB` or `4096`.
 *
 * @param {string} text
 * @returns {number} a whole number of bytes, 1 or more
 */
export function parseSize(text) {
  const [, number, unit] = /^\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*$/i.exec(text) ?? []
  const factor = units[unit?.toLowerCase() || 'b']
  const bytes = Number(number) * (factor ?? NaN)
  if (!Number.isSafeInteger(bytes) || bytes < 1) {
    throw new UsageError(`"${text}" is not a size; write 4KiB, 1MiB, 1.5MB or a number of bytes`)
  }
  return bytes
}

/**
 * The shortest exact form: 4096 is `4 KiB`, 1000 is `1000 B`.
 *
 * @param {number} bytes
 * @returns {string}
 */
export function formatSize(bytes) {
  for (const [unit, factor] of /** @type {const} */ ([
    ['GiB', 2 ** 30],
    ['MiB', 2 ** 20],
    ['KiB', 2 ** 10],
  ])) {
    if (bytes >= factor && (bytes / factor) % 0.25 === 0) return `${bytes / factor} ${unit}`
  }
  return `${bytes} B`
}
