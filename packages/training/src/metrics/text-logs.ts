import { histogramOf } from './histogram.ts'
import {
  logOfRank,
  type Entry,
  type LogFormat,
  type MetricLog,
  type MetricLogOptions,
} from './metric-log.ts'

/**
 * Writes metrics as JSON Lines: `{"time":..., "step":..., "name":..., ...}` with `value`, `text` or
 * `histogram`. `time` is in seconds since 1970. NaN and infinities are written as strings.
 *
 * Lines are appended to an existing file. After a restart, a step may have several lines: use the
 * last one.
 *
 * @throws ERR_TSR_ARGUMENT
 *
 * @example
 * await run.fit(data, { epochs: 3, log: [jsonl('metrics.jsonl')] })
 */
export function jsonl(path: string, options: MetricLogOptions = {}): MetricLog {
  const format = textFormat('', (name, step, entry) => {
    const time = Date.now() / 1000
    return `${JSON.stringify({ time, step, name, ...contentOf(entry) })}\n`
  })
  return logOfRank(path, options, format)
}

/**
 * Writes metrics as a CSV file with the columns `step`, `name` and `value`, one row per number.
 * Texts and histograms are skipped. Rows are appended to an existing file, as with `jsonl`.
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function csv(path: string, options: MetricLogOptions = {}): MetricLog {
  const format = textFormat('step,name,value\n', (name, step, entry) => {
    if (!('value' in entry)) return ''
    const quoted = /[",\r\n]/.test(name) ? `"${name.replaceAll('"', '""')}"` : name
    return `${step},${quoted},${entry.value}\n`
  })
  return logOfRank(path, options, format)
}

function contentOf(entry: Entry): object {
  if ('text' in entry) return entry
  if ('values' in entry) return { histogram: histogramOf(entry.values) }
  const { value } = entry
  return { value: Number.isFinite(value) ? value : String(value) }
}

const NEWLINE = 10

/** The format of a file of lines. @param lineOf - returns the line of an entry; an empty line is skipped */
function textFormat(
  header: string,
  lineOf: (...entry: Parameters<LogFormat['encode']>) => string,
): LogFormat {
  return {
    /** Adds the rank, if given, to a path: `metrics.csv` becomes `metrics.rank-3.csv` for rank 3. */
    fileOf(path, rank) {
      if (rank === undefined) return path
      return path.replace(/(\.[^./\\]*)?$/, (ending) => `.rank-${rank}${ending}`)
    },
    begin(size, last) {
      if (size === 0) return Buffer.from(header)
      // Terminate an incomplete last line that a killed process left.
      return Buffer.from(last === NEWLINE ? '' : '\n')
    },
    encode: (...entry) => Buffer.from(lineOf(...entry)),
  }
}
