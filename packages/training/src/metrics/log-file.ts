import { appendFile, closeSync, constants, fstatSync, readSync } from 'node:fs'
import { dirname } from 'node:path'
import { promisify } from 'node:util'
import { argumentError, createLogger, makeFolders, openFile, writeWhole } from '@tsrun/core'

const { O_APPEND, O_CREAT, O_RDWR } = constants
/** Log files are also opened for reading, to check the last byte. */
const APPENDING = O_RDWR | O_APPEND | O_CREAT
const append = promisify(appendFile)

/** The capacity of the write buffer in bytes, and the delay in milliseconds before it is written. */
const [BYTES, INTERVAL] = [64 * 1024, 1000]

/** Appends to a file in the background. When the process exits, the buffer is written synchronously. */
export class LogFile {
  readonly #path: string
  readonly #begin: (size: number, last: number | undefined) => Uint8Array
  #waiting: Uint8Array[] = []
  #bytes = 0
  #fd: number | undefined
  /** Settles when all previous writes have completed; rejects if one failed. */
  #writes = Promise.resolve()
  #timer: NodeJS.Timeout | undefined
  #isClosed = false
  readonly #onExit = (): void => {
    if (this.#bytes === 0) return
    try {
      this.#fd ??= this.#open()
      writeWhole(this.#fd, Buffer.concat(this.#waiting))
    } catch (error) {
      // The process is exiting, so no caller can catch the error.
      const facts = { path: this.#path, reason: (error as Error).message }
      createLogger('training').warn(facts, 'the last metrics could not be written')
    }
  }

  /**
   * @param begin - returns bytes to write first, given the size and the last byte of an existing
   *   file
   */
  constructor(path: string, begin: (size: number, last: number | undefined) => Uint8Array) {
    this.#path = path
    this.#begin = begin
    process.once('exit', this.#onExit)
  }

  /** @throws ERR_TSR_ARGUMENT after `close` */
  write(bytes: Uint8Array): void {
    if (this.#isClosed) {
      throw argumentError(this.#path, 'a closed log', 'no more metrics after close()')
    }
    this.#waiting.push(bytes)
    this.#bytes += bytes.length
    if (this.#bytes >= BYTES) this.#start()
    else
      this.#timer ??= setTimeout(() => {
        this.#start()
      }, INTERVAL).unref()
  }

  async flush(): Promise<void> {
    this.#start()
    await this.#writes
  }

  async close(): Promise<void> {
    this.#isClosed = true
    process.removeListener('exit', this.#onExit)
    try {
      await this.flush()
    } finally {
      if (this.#fd !== undefined) closeSync(this.#fd)
      this.#fd = undefined
    }
  }

  #start(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#bytes === 0) return
    const bytes = Buffer.concat(this.#waiting)
    this.#waiting = []
    this.#bytes = 0
    this.#writes = this.#writes.then(() => this.#append(bytes))
    // Ignore the error here: `flush` and `close` throw it.
    this.#writes.catch(() => undefined)
  }

  async #append(bytes: Uint8Array): Promise<void> {
    this.#fd ??= this.#open()
    await append(this.#fd, bytes)
  }

  #open(): number {
    makeFolders(dirname(this.#path))
    const fd = openFile(this.#path, APPENDING)
    try {
      const { size } = fstatSync(fd)
      const last = Buffer.alloc(1)
      if (size > 0) readSync(fd, last, 0, 1, size - 1)
      writeWhole(fd, this.#begin(size, size > 0 ? last[0] : undefined))
      return fd
    } catch (error) {
      closeSync(fd)
      throw error
    }
  }
}

const NEWLINE = 10

/** Opens a log file of text lines. Terminates an incomplete last line that a killed process left. */
export function lineFile(path: string, header = ''): LogFile {
  return new LogFile(path, (size, last) => {
    if (size === 0) return Buffer.from(header)
    return Buffer.from(last === NEWLINE ? '' : '\n')
  })
}
