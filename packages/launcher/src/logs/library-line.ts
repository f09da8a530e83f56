const levels: Readonly<Record<number, string>> = {
  10: 'TRACE',
  20: 'DEBUG',
  30: 'INFO',
  40: 'WARN',
  50: 'ERROR',
  60: 'FATAL',
}

/** Fields of every line of the library's logger, which a person need not see. */
const usual = ['level', 'time', 'name', 'rank', 'localRank', 'nodeRank', 'runId', 'msg', 'err']

/**
 * Makes a line for people of a JSON line that the library's logger wrote (`WARN engine: …`);
 * undefined for any other line, also for JSON of the user's own logger.
 */
export function prettyLibraryLine(text: string): string | undefined {
  if (!text.startsWith('{"level":')) return undefined
  const entry = parse(text)
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

function describeError(error: unknown): string {
  if (typeof error !== 'object' || error === null) return ''
  const { stack, message } = error as { stack?: unknown; message?: unknown }
  if (typeof stack === 'string' && stack !== '') return `\n${stack}`
  return typeof message === 'string' ? ` (${message})` : ''
}

function parse(text: string): Record<string, unknown> | undefined {
  try {
    return JSON.parse(text) as Record<string, unknown>
  } catch {
    return undefined
  }
}
