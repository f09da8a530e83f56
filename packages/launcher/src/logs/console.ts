import type { Readable, Writable } from 'node:stream'
import { visibleText } from '@tsrun/core'
import type { LogFormat } from '../args/output-options.ts'
import type { StreamName } from './lines.ts'
import { wantsColour } from './presenter.ts'

const others = { stdout: 'stderr', stderr: 'stdout' } as const

/**
 * The standard output and standard error of the launcher. While their reader is slow, the streams of the
 * ranks wait. When the reader is gone (`| head`), output is dropped; when a stream cannot be written, as on
 * a full disk, the other one says so. `onClosed` is called in both cases.
 */
export class Console {
  readonly #outputs: Readonly<Record<StreamName, Writable>>
  readonly #sources: Readonly<Record<StreamName, Set<Readable>>> = {
    stdout: new Set(),
    stderr: new Set(),
  }
  readonly #closed = new Set<StreamName>()
  #isIncomplete = false

  /** @param onClosed - is given the error, unless the reader is gone */
  constructor(
    outputs: Readonly<Record<StreamName, Writable>>,
    onClosed: (error?: NodeJS.ErrnoException) => void,
  ) {
    this.#outputs = outputs
    for (const name of ['stdout', 'stderr'] as const) {
      outputs[name].on('drain', () => {
        this.#resume(name)
      })
      outputs[name].on('error', (error) => {
        this.#closed.add(name)
        this.#resume(name)
        if (isReaderGone(error, outputs[name])) {
          onClosed()
          return
        }
        this.#isIncomplete = true
        this.write(others[name], `tsrun: ${name} cannot be written: ${error.message}\n`)
        onClosed(error)
      })
    }
  }

  /** Whether a part of the output is lost although it has a reader. */
  get isIncomplete(): boolean {
    return this.#isIncomplete
  }

  /** What stderr cannot take goes to stdout, so that the report of a failure is not lost. */
  write(name: StreamName, text: string): void {
    if (this.#closed.has(name)) {
      if (name === 'stderr' && this.#isIncomplete) this.write('stdout', text)
      return
    }
    const written = this.#outputs[name].write(text, (error) => {
      if (error && name === 'stderr' && !isReaderGone(error, this.#outputs[name])) {
        this.write('stdout', text)
      }
    })
    if (!written) for (const source of this.#sources[name]) source.pause()
  }

  /**
   * Writes text for people, which may quote others: of what controls terminals, only colours pass, and only
   * to terminals. What programs read is for `write`, as signs in the place of characters would change it.
   */
  print(name: StreamName, text: string): void {
    const output: Writable & { isTTY?: boolean } = this.#outputs[name]
    this.write(name, visibleText(text, wantsColour(output, process.env)))
  }

  /** Pauses `source` while the reader of this output is slow. */
  throttle(name: StreamName, source: Readable): void {
    this.#sources[name].add(source)
    source.once('close', () => this.#sources[name].delete(source))
    if (this.#outputs[name].writableNeedDrain && !this.#closed.has(name)) source.pause()
  }

  /** Whether the output of the ranks waits for a slow reader. */
  isWaiting(): boolean {
    return (['stdout', 'stderr'] as const).some(
      (name) => !this.#closed.has(name) && this.#outputs[name].writableNeedDrain,
    )
  }

  /** Resolves when everything is written, or when that is not possible. */
  async flush(): Promise<void> {
    // The last words about the one are in the other.
    for (const name of ['stderr', 'stdout', 'stderr'] as const) {
      // The error of a write arrives after the write.
      await new Promise(setImmediate)
      if (this.#closed.has(name) || this.#outputs[name].writableLength === 0) continue
      await new Promise<void>((resolve) => {
        this.#outputs[name].write('', () => {
          resolve()
        })
        this.#outputs[name].once('error', () => {
          resolve()
        })
      })
    }
  }

  #resume(name: StreamName): void {
    for (const source of this.#sources[name]) source.resume()
  }
}

/** Whether an error says that the reader is gone, as at the end of a pipe or of a terminal. */
function isReaderGone({ code }: NodeJS.ErrnoException, output: Writable): boolean {
  if (code === 'EIO') return 'isTTY' in output && output.isTTY === true
  return code === 'EPIPE' || code === 'ECONNRESET'
}

/** The messages of the launcher itself: sentences, or events for programs. */
export class Announcer {
  readonly #console: Console
  readonly #format: LogFormat

  constructor(console: Console, format: LogFormat) {
    this.#console = console
    this.#format = format
  }

  /** Writes a sentence; with `--log-format json`, an event that has it as `message`. */
  say(event: string, message: string, facts: object = {}): void {
    this.show(event, `tsrun: ${message}\n`, { message, ...facts })
  }

  /** Writes a text to stderr; with `--log-format json`, an event with the facts alone. */
  show(event: string, text: string, facts: object): void {
    if (this.#format === 'json') {
      const line = JSON.stringify({ time: new Date().toISOString(), event, ...facts })
      this.#console.write('stdout', line + '\n')
    } else if (text !== '') {
      this.#console.print('stderr', text)
    }
  }
}
