import { appendFile, closeSync, constants, fstatSync, readSync } from 'node:fs'
import { dirname } from 'node:path'
import { promisify } from 'node:util'
import {
  argumentError,
  choice,
  count,
  createLogger,
  declareOptions,
  filled,
  makeFolders,
  openFile,
  writeWhole,
  type Rules,
} from '@tsrun/core'

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

  /**
   * Logs the distribution of values, for example of a parameter. The values are read before the
   * method returns.
   */
  histogram(name: string, values: ArrayLike<number>, step: number): void

  /** Resolves when everything logged so far was passed to the operating system. */
  flush(): Promise<void>

  /** Writes the buffer and closes the files. Later calls of the logging methods throw. */
  close(): Promise<void>
}

/** Options of a metric log: which ranks write it. */
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

/** A logged value: a number, a text, or numbers whose distribution is shown. */
export type Entry = { value: number } | { text: string } | { values: ArrayLike<number> }

/** The format of a log. */
export interface LogFormat {
  /** Returns the path of the log file. `rank` is given if all ranks write. */
  fileOf(path: string, rank?: number): string
  /** Returns the first bytes to write, given the size and the last byte of an existing file. */
  begin(size: number, last: number | undefined): Uint8Array
  /** Returns the bytes of an entry; an empty array skips the entry. */
  encode(name: string, step: number, entry: Entry): Uint8Array
}

/**
 * Returns the metric log of this rank. On a rank that does not write, the log ignores all calls.
 *
 * @throws ERR_TSR_ARGUMENT for an invalid path or option. The methods of the log throw this error when
 *   the step is not a non-negative integer
 */
export function logOfRank(path: string, options: MetricLogOptions, format: LogFormat): MetricLog {
  filled('a path').check('path', path)
  const { rank = Number(process.env['RANK'] ?? 0), ranks } = readOptions(options)
  if (ranks === 'first' && rank > 0) return silent
  const { write, ...file } = openLog(
    format.fileOf(path, ranks === 'all' ? rank : undefined),
    format,
  )
  const log = (name: string, step: number, entry: Entry) => {
    if (name === '') {
      throw argumentError('the name of a metric', '""', 'a name such as loss')
    }
    count().check(`the step of ${name}`, step)
    const content = format.encode(name, step, entry)
    if (content.length > 0) write(content)
  }
  return {
    ...file,
    scalar(name, value, step) {
      log(name, step, { value })
    },
    text(name, text, step) {
      log(name, step, { text })
    },
    histogram(name, values, step) {
      log(name, step, { values })
    },
  }
}

const nothing = (): void => undefined
const done = () => Promise.resolve()
const silent: MetricLog = {
  scalar: nothing,
  text: nothing,
  histogram: nothing,
  flush: done,
  close: done,
}

const { O_APPEND, O_CREAT, O_RDWR } = constants
/** Log files are also opened for reading, to check the last byte. */
const APPENDING = O_RDWR | O_APPEND | O_CREAT
const append = promisify(appendFile)

/** The capacity of the write buffer in bytes, and the delay in milliseconds before it is written. */
const [BYTES, INTERVAL] = [64 * 1024, 1000]

/** Appends to a file in the background. When the process exits, the buffer is written synchronously. */
function openLog(path: string, format: LogFormat) {
  let waiting: Uint8Array[] = []
  let bytes = 0
  let fd: number | undefined
  /** Settles when all previous writes have completed; rejects if one failed. */
  let writes = Promise.resolve()
  let timer: NodeJS.Timeout | undefined
  let isClosed = false

  const open = () => {
    makeFolders(dirname(path))
    const opened = openFile(path, APPENDING)
    try {
      const { size } = fstatSync(opened)
      const last = Buffer.alloc(1)
      if (size > 0) readSync(opened, last, 0, 1, size - 1)
      writeWhole(opened, format.begin(size, size > 0 ? last[0] : undefined))
      return opened
    } catch (error) {
      closeSync(opened)
      throw error
    }
  }
  const onExit = () => {
    if (bytes === 0) return
    try {
      fd ??= open()
      writeWhole(fd, Buffer.concat(waiting))
    } catch (error) {
      // The process is exiting, so no caller can catch the error.
      const facts = { path, reason: (error as Error).message }
      createLogger('training').warn(facts, 'the last metrics could not be written')
    }
  }
  const start = () => {
    clearTimeout(timer)
    timer = undefined
    if (bytes === 0) return
    const content = Buffer.concat(waiting)
    waiting = []
    bytes = 0
    writes = writes.then(async () => {
      fd ??= open()
      await append(fd, content)
    })
    // Ignore the error here: `flush` and `close` throw it.
    writes.catch(() => undefined)
  }
  const flush = async () => {
    start()
    await writes
  }
  /** @throws ERR_TSR_ARGUMENT after `close` */
  const write = (content: Uint8Array) => {
    if (isClosed) throw argumentError(path, 'a closed log', 'no more metrics after close()')
    waiting.push(content)
    bytes += content.length
    if (bytes >= BYTES) start()
    else timer ??= setTimeout(start, INTERVAL).unref()
  }
  process.once('exit', onExit)
  return {
    write,
    flush,
    async close() {
      isClosed = true
      process.removeListener('exit', onExit)
      try {
        await flush()
      } finally {
        if (fd !== undefined) closeSync(fd)
        fd = undefined
      }
    },
  }
}
