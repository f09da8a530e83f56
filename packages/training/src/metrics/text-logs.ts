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
    const file = lineFile(place)
    const write = (step: number, name: string, content: object): void => {
      const time = Date.now() / 1000
      file.write(Buffer.from(`${JSON.stringify({ time, step, name, ...content })}\n`))
    }
    return {
      scalar(name, value, step) {
        write(step, name, { value: Number.isFinite(value) ? value : String(value) })
      },
      text(name, text, step) {
        write(step, name, { text })
      },
      histogram(name, values, step) {
        write(step, name, { histogram: histogramOf(values) })
      },
      flush: () => file.flush(),
      close: () => file.close(),
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
    const file = lineFile(place, 'step,name,value\n')
    return {
      scalar(name, value, step) {
        const quoted = /[",\r\n]/.test(name) ? `"${name.replaceAll('"', '""')}"` : name
        file.write(Buffer.from(`${step},${quoted},${value}\n`))
      },
      text: () => undefined,
      histogram: () => undefined,
      flush: () => file.flush(),
      close: () => file.close(),
    }
  })
}
