import { histogramOf } from './histogram.ts'
import { lineFile } from './log-file.ts'
import type { MetricLog } from './metric-log.ts'
import { fileOfRank, logOfRank, type MetricLogOptions } from './ranks.ts'

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
    const { write, ...file } = lineFile(place)
    const log = (step: number, name: string, content: object) => {
      const time = Date.now() / 1000
      write(Buffer.from(`${JSON.stringify({ time, step, name, ...content })}\n`))
    }
    return {
      ...file,
      scalar(name, value, step) {
        log(step, name, { value: Number.isFinite(value) ? value : String(value) })
      },
      text(name, text, step) {
        log(step, name, { text })
      },
      histogram(name, values, step) {
        log(step, name, { histogram: histogramOf(values) })
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
    const { write, ...file } = lineFile(place, 'step,name,value\n')
    return {
      ...file,
      scalar(name, value, step) {
        const quoted = /[",\r\n]/.test(name) ? `"${name.replaceAll('"', '""')}"` : name
        write(Buffer.from(`${step},${quoted},${value}\n`))
      },
      text: () => undefined,
      histogram: () => undefined,
    }
  })
}
