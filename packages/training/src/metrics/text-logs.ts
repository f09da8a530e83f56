import { histogramOf } from './histogram.ts'
import {
  logOfRank,
  openLog,
  type Entry,
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
  return logOfRank(path, options, fileOfRank, (place) => {
    const { write: append, ...file } = lineFile(place)
    return {
      ...file,
      write(name, step, entry) {
        const time = Date.now() / 1000
        const content = contentOf(entry)
        append(Buffer.from(`${JSON.stringify({ time, step, name, ...content })}\n`))
      },
    }
  })
}

/**
 * Writes metrics as a CSV file with the columns `step`, `name` and `value`, one row per number.
 * Texts and histograms are skipped. Rows are appended to an existing file, as with `jsonl`.
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function csv(path: string, options: MetricLogOptions = {}): MetricLog {
  return logOfRank(path, options, fileOfRank, (place) => {
    const { write: append, ...file } = lineFile(place, 'step,name,value\n')
    return {
      ...file,
      write(name, step, entry) {
        if (!('value' in entry)) return
        const quoted = /[",\r\n]/.test(name) ? `"${name.replaceAll('"', '""')}"` : name
        append(Buffer.from(`${step},${quoted},${entry.value}\n`))
      },
    }
  })
}

function contentOf(entry: Entry): object {
  if ('text' in entry) return entry
  if ('values' in entry) return { histogram: histogramOf(entry.values) }
  const { value } = entry
  return { value: Number.isFinite(value) ? value : String(value) }
}

/** Returns the path of one rank's file: `metrics.rank-3.csv` for `metrics.csv` and rank 3. */
function fileOfRank(path: string, rank: number): string {
  return path.replace(/(\.[^./\\]*)?$/, (ending) => `.rank-${rank}${ending}`)
}

const NEWLINE = 10

/** Opens a log file of text lines. Terminates an incomplete last line that a killed process left. */
function lineFile(path: string, header = '') {
  return openLog(path, (size, last) => {
    if (size === 0) return Buffer.from(header)
    return Buffer.from(last === NEWLINE ? '' : '\n')
  })
}
