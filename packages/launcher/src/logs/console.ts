import type { Readable, Writable } from 'node:stream'
import { visibleText } from '@tsrun/core'
import type { LogFormat } from '../args/output-options.ts'
import { jsonLine, type StreamName } from './lines.ts'
import { wantsColour } from './presenter.ts'

/** Resets the terminal after raw output: ends a control sequence, restores character set and colours. */
const RESET = '\x1b\\\x1b(B\x0f\x1b[0m'

const others = { stdout: 'stderr', stderr: 'stdout' } as const

interface Stream {
  readonly output: Writable
  /** The streams that are paused while the output is full. */
  readonly sources: Set<Readable>
  isClosed: boolean
}

export type Console = ReturnType<typeof openConsole>

/**
 * The launcher's standard output and standard error. Applies back-pressure to the ranks. If the reader
 * is gone (`| head`), output is dropped. If a stream cannot be written, for example on a full disk, the
 * other stream reports it. Calls `onClosed` in both cases.
 *
 * @param onClosed - receives the error, unless the reader is gone
 */
export function openConsole(
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
      console.isIncomplete = true
      console.write(others[name], `tsrun: ${name} cannot be written: ${error.message}\n`)
      onClosed(error)
    })
    return stream
  }
  const streams = { stdout: open('stdout'), stderr: open('stderr') }

  const console = {
    /** Whether output was lost for a reason other than a closed reader. */
    isIncomplete: false,
    isUsed: false,

    /** If writing to stderr fails, writes the text to stdout, so that failure reports are not lost. */
    write(name: StreamName, text: string): void {
      console.isUsed = true
      const { output, sources, isClosed } = streams[name]
      if (isClosed) {
        if (name === 'stderr' && console.isIncomplete) console.write('stdout', text)
        return
      }
      const written = output.write(text, (error) => {
        if (error && name === 'stderr' && !isReaderGone(error, output)) {
          console.write('stdout', text)
        }
      })
      if (!written) for (const source of sources) source.pause()
    },

    /**
     * Writes text for humans, which may quote untrusted text. Removes terminal control sequences, except
     * for colours on a terminal. For output that programs read, use `write`, which changes no
     * characters.
     *
     * @param afterRaw - whether the ranks' own control sequences have passed to the terminal
     */
    print(name: StreamName, text: string, afterRaw = false): void {
      const output: Writable & { isTTY?: boolean } = streams[name].output
      const reset = afterRaw && output.isTTY === true ? RESET : ''
      console.write(name, reset + visibleText(text, wantsColour(output, process.env)))
    },

    /** Applies back-pressure from this output to `source`. */
    throttle(name: StreamName, source: Readable): void {
      const { sources } = streams[name]
      sources.add(source)
      source.once('close', () => sources.delete(source))
      if (isFull(streams[name])) source.pause()
    },

    /** Whether the ranks are paused because a reader of the output is slow. */
    isWaiting: (): boolean => Object.values(streams).some(isFull),

    /** Resolves when each stream has written all its text or has failed. */
    async flush(): Promise<void> {
      const { stdout, stderr } = streams
      // Flush stderr again at the end, because an error of stdout is reported on stderr.
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
    },
  }
  return console
}

function isFull({ output, isClosed }: Stream): boolean {
  return !isClosed && output.writableNeedDrain
}

/** Whether the error means that the reader of a pipe or a terminal is gone. */
function isReaderGone({ code }: NodeJS.ErrnoException, output: Writable): boolean {
  if (code === 'EIO') return 'isTTY' in output && output.isTTY === true
  return code === 'EPIPE' || code === 'ECONNRESET'
}

export type Announcer = ReturnType<typeof createAnnouncer>

/** Prints the launcher's messages: as sentences, or as events for programs. */
export function createAnnouncer(console: Console, format: LogFormat) {
  const announcer = {
    /** Prints a sentence; with `--log-format json`, an event with the sentence as `message`. */
    say(event: string, message: string, facts: object = {}): void {
      announcer.show(event, `tsrun: ${message}\n`, { message, ...facts })
    },

    /** Prints text on stderr; with `--log-format json`, an event with only the facts. */
    show(event: string, text: string, facts: object): void {
      if (format === 'json') {
        console.write('stdout', jsonLine({ time: new Date().toISOString(), event, ...facts }))
      } else if (text !== '') {
        console.print('stderr', text, format === 'raw')
      }
    },
  }
  return announcer
}
