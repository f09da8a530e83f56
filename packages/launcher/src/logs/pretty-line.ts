import { anything, parseJson, record } from '@tsrun/core'

const fields = record(anything())

const levels: Readonly<Record<number, string>> = {
  10: 'TRACE',
  20: 'DEBUG',
  30: 'INFO',
  40: 'WARN',
  50: 'ERROR',
  60: 'FATAL',
}

/** Fields that the library's logger adds to every line; the human-readable form omits them. */
const usual = ['level', 'time', 'name', 'rank', 'localRank', 'nodeRank', 'runId', 'msg', 'err']

/**
 * Formats a JSON line of a logger as `WARN engine: …`; undefined for any other line.
 *
 * @param isOfLibrary - accepts only lines from the library's logger
 */
export function prettyLine(text: string, isOfLibrary = false): string | undefined {
  if (!text.startsWith(isOfLibrary ? '{"level":' : '{')) return undefined
  const entry = parseJson(text, fields) ?? {}
  const { level, msg, message = msg, name, runId, err } = entry
  const severity = levels[Number(level)]
  const isOurs = severity !== undefined && typeof runId === 'string' && typeof name === 'string'
  if (isOfLibrary && !isOurs) return undefined
  if (typeof level !== 'string' && typeof level !== 'number') return undefined
  if (typeof message !== 'string') return undefined
  const facts = Object.entries(isOurs ? entry : {})
    .filter(([key]) => !usual.includes(key))
    .map(([key, value]) => ` ${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
  const source = typeof name === 'string' ? `${name}: ` : ''
  return `${severity ?? String(level).toUpperCase()} ${source}${message}${facts.join('')}${describeError(err)}`
}

function describeError(error: unknown): string {
  if (typeof error !== 'object' || error === null) return ''
  const { stack, message } = error as { stack?: unknown; message?: unknown }
  if (typeof stack === 'string' && stack !== '') return `\n${stack}`
  return typeof message === 'string' ? ` (${message})` : ''
}
