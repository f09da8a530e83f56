import { argumentError, choice, count, declareOptions, filled, type Rules } from '@tsrun/core'

/**
 * The destination for metrics of a training run: a TensorBoard folder, a CSV or JSONL file, or a
 * custom destination.
 *
 * The logging methods only append to a buffer, so call them in a hot loop without awaiting
 * anything. The buffer is written in the background, in the order of the calls. The next `flush` or
 * `close` throws any file system error.
 */
export interface MetricLog {
  /**
   * Logs a number, for example the loss.
   *
   * @param name - `loss`, or with a group `evaluate/loss`
   * @param value - may be NaN or infinite, as in a run that diverges
   * @param step - the number of the step, from 0
   */
  scalar(name: string, value: number, step: number): void

  /** Logs a text, for example the output of a language model. */
  text(name: string, text: string, step: number): void

  /** Resolves when everything logged so far was passed to the operating system. */
  flush(): Promise<void>

  /** Writes the buffer and closes the files. Later calls of the logging methods throw. */
  close(): Promise<void>
}

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

/** Where a log's entries go: numbers and texts. */
export interface Destination extends Pick<MetricLog, 'flush' | 'close'> {
  readonly write: (name: string, value: number | string, step: number) => void
}

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
  create: (path: string) => Destination,
): MetricLog {
  filled('a path').check('path', path)
  const { rank = Number(process.env['RANK'] ?? 0), ranks } = readOptions(options)
  if (ranks === 'first' && rank > 0) return silent
  const { write, ...file } = create(ranks === 'all' ? place(path, rank) : path)
  const log: Destination['write'] = (name, value, step) => {
    if (name === '') {
      throw argumentError('the name of a metric', '""', 'a name such as loss')
    }
    count().check(`the step of ${name}`, step)
    write(name, value, step)
  }
  return { ...file, scalar: log, text: log }
}

const nothing = (): void => undefined
const done = (): Promise<void> => Promise.resolve()
const silent: MetricLog = { scalar: nothing, text: nothing, flush: done, close: done }
