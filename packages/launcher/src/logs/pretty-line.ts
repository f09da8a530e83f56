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
 * The human-readable form (`WARN engine: …`) of a JSON line from the library's logger. Undefined for
 * any other line, including JSON of the user's logger.
 */
export function prettyLibraryLine(text: string): string | undefined {
  if (!text.startsWith('{"level":')) return undefined
  const entry = parseJson(text, fields)
  const level = levels[Number(entry?.['level'])]
  if (entry === undefined || level === undefined || typeof entry['name'] !== 'string')
    return undefined
  if (typeof entry['runId'] !== 'string') return undefined
  const message = typeof entry['msg'] === 'string' ? ` ${entry['msg']}` : ''
  const facts = Object.entries(entry)
    .filter(([key]) => !usual.includes(key))
    .map(([key, value]) => ` ${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
  return `${level} ${entry['name']}:${message}${facts.join('')}${describeError(entry['err'])}`
}

/** The human-readable form of a JSON line from any logger; undefined for other lines. */
export function prettyLine(text: string): string | undefined {
  const ours = prettyLibraryLine(text)
  if (ours !== undefined || !text.startsWith('{')) return ours
  const { level, msg, message = msg, name, err } = parseJson(text, fields) ?? {}
  if (typeof level !== 'string' && typeof level !== 'number') return undefined
  if (typeof message !== 'string') return undefined
  const severity = levels[Number(level)] ?? String(level).toUpperCase()
  return `${severity} ${typeof name === 'string' ? `${name}: ` : ''}${message}${describeError(err)}`
}

function describeError(error: unknown): string {
  if (typeof error !== 'object' || error === null) return ''
  const { stack, message } = error as { stack?: unknown; message?: unknown }
  if (typeof stack === 'string' && stack !== '') return `\n${stack}`
  return typeof message === 'string' ? ` (${message})` : ''
}
