import { histogramOf } from './histogram.ts'
import { lineFile } from './log-file.ts'
import type { MetricLog } from './metric-log.ts'
import { fileOfRank, logOfRank, type MetricLogOptions } from './ranks.ts'

/**
 * Writes metrics as a file with a JSON object in each line: `{"time":..., "step":..., "name":..., ...}`
 * with `value`, `text` or `histogram`. `time` is in seconds since 1970; NaN and infinities are strings.
 * An existing file is appended to, as after a restart: of several lines for a step, the last one counts.
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
 * Writes metrics as a CSV file with the columns `step`, `name` and `value`, one row per number; skips
 * texts and histograms. An existing file is appended to, as by `jsonl`.
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
