import { argumentError, choice, count, declareOptions, filled, type Rules } from '@tsrun/core'
import type { MetricLog } from './metric-log.ts'

/** Which ranks write a log of metrics. */
export interface MetricLogOptions {
  /** The rank of this process. Default: its rank in the job, then the environment variable RANK, then 0. */
  readonly rank?: number
  /** Which ranks write: only rank 0 (`first`, default), or `all` ranks, each to its own file or folder. */
  readonly ranks?: 'first' | 'all'
}

const readOptions = declareOptions({
  rank: count().optional(),
  ranks: choice('first', 'all').default('first'),
} satisfies Rules<MetricLogOptions>)

/**
 * Returns the metric log of this rank. If all ranks write, the log is at `place(path, rank)`. On a
 * rank that does not write, the log ignores all calls.
 *
 * @throws ERR_TSR_ARGUMENT for an invalid path or option. The log's methods throw it when the step
 *   is not a non-negative integer
 */
export function logOfRank(
  path: string,
  options: MetricLogOptions,
  place: (path: string, rank: number) => string,
  create: (path: string) => MetricLog,
): MetricLog {
  filled('a path').check('path', path)
  const { rank = Number(process.env['RANK'] ?? 0), ranks } = readOptions(options)
  if (ranks === 'first' && rank > 0) return silent
  return checked(create(ranks === 'all' ? place(path, rank) : path))
}

const nothing = (): void => undefined
const done = (): Promise<void> => Promise.resolve()
const silent: MetricLog = {
  scalar: nothing,
  text: nothing,
  histogram: nothing,
  flush: done,
  close: done,
}

function checked(log: MetricLog): MetricLog {
  const check = (name: string, step: number) => {
    if (name === '') {
      throw argumentError('the name of a metric', '""', 'a name such as loss')
    }
    count().check(`the step of ${name}`, step)
  }
  return {
    ...log,
    scalar(name, value, step) {
      check(name, step)
      log.scalar(name, value, step)
    },
    text(name, value, step) {
      check(name, step)
      log.text(name, value, step)
    },
    histogram(name, values, step) {
      check(name, step)
      log.histogram(name, values, step)
    },
  }
}

/** Returns the path of one rank's file: `metrics.rank-3.csv` for `metrics.csv` and rank 3. */
export function fileOfRank(path: string, rank: number): string {
  return path.replace(/(\.[^./\\]*)?$/, (ending) => `.rank-${rank}${ending}`)
}
