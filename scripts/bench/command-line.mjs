import { parseArgs } from 'node:util'
import { nearestName } from '@tsrun/core'

/** The command line is wrong. The message is one line for the reader; the exit code is 2. */
export class UsageError extends Error {
  code = 'ERR_BENCH_USAGE'
}

/**
 * @typedef {object} Option
 * @property {string} description
 * @property {string} [value] - a placeholder for the value in the help; flags have none
 * @property {string} [default]
 *
 * @typedef {Readonly<Record<string, Option>>} Options
 * @typedef {Record<string, string | undefined> & { json?: string }} Values
 *
 * @typedef {object} Command
 * @property {string} summary
 * @property {Options} options
 * @property {(values: Values) => Promise<number>} run - resolves to the exit code
 */

/**
 * The options that `args` give, completed with the defaults; a flag that is given has the value `true`.
 *
 * @param {Options} options
 * @param {readonly string[]} args
 * @returns {Values}
 */
export function parseOptions(options, args) {
  const { tokens } = parseArgs({
    args: [...args],
    strict: false,
    tokens: true,
    options: Object.fromEntries(
      Object.entries(options).map(([name, { value }]) => [
        name,
        { type: value === undefined ? 'boolean' : 'string' },
      ]),
    ),
  })
  /** @type {Values} */
  const values = Object.fromEntries(
    Object.entries(options).map(([name, option]) => [name, option.default]),
  )
  for (const token of tokens) {
    if (token.kind === 'positional') throw new UsageError(`unexpected "${token.value}"`)
    if (token.kind === 'option') values[token.name] = readOption(options, token)
  }
  return values
}

/**
 * @param {Options} options
 * @param {{ name: string, rawName: string, value?: string | undefined }} token
 * @returns {string}
 */
function readOption(options, { name, rawName, value }) {
  const option = Object.hasOwn(options, name) ? options[name] : undefined
  if (option === undefined) {
    throw new UsageError(`unknown option ${rawName}${suggest(name, Object.keys(options), '--')}`)
  }
  if (option.value === undefined) {
    if (value !== undefined) throw new UsageError(`${rawName} takes no value`)
    return 'true'
  }
  if (value === undefined || value === '') {
    throw new UsageError(`${rawName} needs a value: ${rawName} ${option.value}`)
  }
  return value
}

/**
 * @param {string} word
 * @param {readonly string[]} candidates
 * @param {string} [prefix]
 * @returns {string} the end of an error message
 */
export function suggest(word, candidates, prefix = '') {
  const near = nearestName(word, candidates)
  return near === undefined ? '' : `; did you mean ${prefix}${near}?`
}

/**
 * The items of a comma-separated option, each one of `allowed`.
 *
 * @template {string} T
 * @param {string} option
 * @param {string | undefined} text
 * @param {readonly T[]} allowed
 * @returns {T[]}
 */
export function readList(option, text, allowed) {
  return splitList(text).map((item) => {
    const found = allowed.find((candidate) => candidate === item)
    if (found !== undefined) return found
    const hint = suggest(item, allowed) || `; choose from ${allowed.join(', ')}`
    throw new UsageError(`--${option}: unknown "${item}"${hint}`)
  })
}

/** @param {string | undefined} text */
export function splitList(text) {
  const items = (text ?? '').split(',').map((item) => item.trim())
  return [...new Set(items)].filter((item) => item !== '')
}

/**
 * @param {string} option
 * @param {string | undefined} text
 * @param {number} lowest
 * @param {number} highest
 * @returns {number}
 */
export function readInteger(option, text, lowest, highest) {
  const value = /^\d+$/.test(text ?? '') ? Number(text) : NaN
  if (value >= lowest && value <= highest) return value
  throw new UsageError(`--${option} must be an integer from ${lowest} to ${highest}, not "${text}"`)
}

/** @param {Options} options */
export function describeOptions(options) {
  const left = Object.entries(options).map(([name, option]) =>
    option.value === undefined ? `--${name}` : `--${name} ${option.value}`,
  )
  const width = Math.max(...left.map((text) => text.length))
  return Object.values(options)
    .map((option, i) => {
      const fallback = option.default === undefined ? '' : ` (default ${option.default})`
      return `  ${(left[i] ?? '').padEnd(width)}  ${option.description}${fallback}`
    })
    .join('\n')
}
