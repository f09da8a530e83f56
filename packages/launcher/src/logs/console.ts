import type { Readable, Writable } from 'node:stream'
import { visibleText } from '@tsrun/core'
import type { LogFormat } from '../args/output-options.ts'
import { jsonLine } from './json-line.ts'
import type { StreamName } from './lines.ts'
import { wantsColour } from './presenter.ts'

/**
 * Ends what unchanged output of a rank may have left on: a control sequence, another character set,
 * colours.
 */
const RESET = '\x1b\\\x1b(B\x0f\x1b[0m'

const others = { stdout: 'stderr', stderr: 'stdout' } as const

interface Stream {
  readonly output: Writable
  /** What the output holds up while it is full. */
  readonly sources: Set<Readable>
  isClosed: boolean
}

/**
 * The launcher's standard output and standard error. Applies back-pressure to the ranks. If the reader
 * is gone (`| head`), output is dropped. If a stream cannot be written, for example on a full disk, the
 * other stream reports it. Calls `onClosed` in both cases.
 */
export class Console {
  readonly #streams: Readonly<Record<StreamName, Stream>>
  /** Whether output was lost for a reason other than a closed reader. */
  isIncomplete = false
  /** Whether anything was written. */
  isUsed = false

  /** @param onClosed - receives the error, unless the reader is gone */
  constructor(
    outputs: Readonly<Record<StreamName, Writable>>,
    onClosed: (error?: NodeJS.ErrnoException) => void,
  ) {
    const open = (name: StreamName): Stream => {
      const stream: Stream = { output: outputs[name], sources: new Set(), isClosed: false }
      const resume = (): void => {
        for (const source of stream.sources) source.resume()
      }
      stream.output.on('drain', resume).on('error', (error) => {
        stream.isClosed = true
        resume()
        if (isReaderGone(error, stream.output)) {
          onClosed()
          return
        }
        this.isIncomplete = true
        this.write(others[name], `tsrun: ${name} cannot be written: ${error.message}\n`)
        onClosed(error)
      })
      return stream
    }
    this.#streams = { stdout: open('stdout'), stderr: open('stderr') }
  }

  /** If stderr cannot be written, its text goes to stdout, so that failure reports are not lost. */
  write(name: StreamName, text: string): void {
    this.isUsed = true
    const { output, sources, isClosed } = this.#streams[name]
    if (isClosed) {
      if (name === 'stderr' && this.isIncomplete) this.write('stdout', text)
      return
    }
    const written = output.write(text, (error) => {
      if (error && name === 'stderr' && !isReaderGone(error, output)) this.write('stdout', text)
    })
    if (!written) for (const source of sources) source.pause()
  }

  /**
   * Writes text for humans, which may quote untrusted text. Of the terminal control sequences, only
   * colours pass, and only to terminals. For output that programs read, use `write`, which changes no
   * characters.
   *
   * @param afterRaw - whether the ranks' own control sequences have passed to the terminal
   */
  print(name: StreamName, text: string, afterRaw = false): void {
    const output: Writable & { isTTY?: boolean } = this.#streams[name].output
    const reset = afterRaw && output.isTTY === true ? RESET : ''
    this.write(name, reset + visibleText(text, wantsColour(output, process.env)))
  }

  /** Applies back-pressure from this output to `source`. */
  throttle(name: StreamName, source: Readable): void {
    const { sources } = this.#streams[name]
    sources.add(source)
    source.once('close', () => sources.delete(source))
    if (isFull(this.#streams[name])) source.pause()
  }

  /** Whether a slow reader holds up the output of the ranks. */
  isWaiting(): boolean {
    return Object.values(this.#streams).some(isFull)
  }

  /** Resolves when everything is written, or cannot be written. */
  async flush(): Promise<void> {
    const { stdout, stderr } = this.#streams
    // An error of one stream is reported on the other.
    for (const stream of [stderr, stdout, stderr]) {
      // The error of a write arrives after the write returns.
      await new Promise(setImmediate)
      const { output, isClosed } = stream
      if (isClosed || output.writableLength === 0) continue
      await new Promise<void>((resolve) => {
        output.write('', () => {
          resolve()
        })
        output.once('error', () => {
          resolve()
        })
      })
    }
  }
}

function isFull({ output, isClosed }: Stream): boolean {
  return !isClosed && output.writableNeedDrain
}

/** Whether the error means that the reader of a pipe or a terminal is gone. */
function isReaderGone({ code }: NodeJS.ErrnoException, output: Writable): boolean {
  if (code === 'EIO') return 'isTTY' in output && output.isTTY === true
  return code === 'EPIPE' || code === 'ECONNRESET'
}

/** Prints the launcher's messages: as sentences, or as events for programs. */
export class Announcer {
  readonly #console: Console
  readonly #format: LogFormat

  constructor(console: Console, format: LogFormat) {
    this.#console = console
    this.#format = format
  }

  /** Prints a sentence; with `--log-format json`, an event with the sentence as `message`. */
  say(event: string, message: string, facts: object = {}): void {
    this.show(event, `tsrun: ${message}\n`, { message, ...facts })
  }

  /** Prints text on stderr; with `--log-format json`, an event with only the facts. */
  show(event: string, text: string, facts: object): void {
    if (this.#format === 'json') {
      this.#console.write('stdout', jsonLine({ time: new Date().toISOString(), event, ...facts }))
    } else if (text !== '') {
      this.#console.print('stderr', text, this.#format === 'raw')
    }
  }
}
