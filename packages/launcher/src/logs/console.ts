import type { Readable, Writable } from 'node:stream'
import { visibleText } from '@tsrun/core'
import type { LogFormat } from '../args/output-options.ts'
import type { StreamName } from './lines.ts'

/**
 * The standard output and standard error of the launcher. While their reader is slow, the streams of the
 * ranks wait. When the reader is gone (`| head`), output is dropped, and `onClosed` is called.
 */
export class Console {
  readonly #outputs: Readonly<Record<StreamName, Writable>>
  readonly #sources: Readonly<Record<StreamName, Set<Readable>>> = {
    stdout: new Set(),
    stderr: new Set(),
  }
  readonly #closed = new Set<StreamName>()

  constructor(outputs: Readonly<Record<StreamName, Writable>>, onClosed: () => void) {
    this.#outputs = outputs
    for (const name of ['stdout', 'stderr'] as const) {
      outputs[name].on('drain', () => {
        this.#resume(name)
      })
      outputs[name].on('error', () => {
        this.#closed.add(name)
        this.#resume(name)
        onClosed()
      })
    }
  }

  write(name: StreamName, text: string): void {
    if (this.#closed.has(name)) return
    if (!this.#outputs[name].write(text)) {
      for (const source of this.#sources[name]) source.pause()
    }
  }

  /**
   * Writes text for people, which may quote others: of what controls terminals, only colours pass. What
   * programs read is for `write`, as signs in the place of characters would change it.
   */
  print(name: StreamName, text: string): void {
    this.write(name, visibleText(text, true))
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
    const names = ['stdout', 'stderr'] as const
    await Promise.all(
      names.map(async (name) => {
        if (this.#closed.has(name)) return
        await new Promise<void>((resolve) => {
          this.#outputs[name].write('', () => {
            resolve()
          })
          this.#outputs[name].once('error', () => {
            resolve()
          })
        })
      }),
    )
  }

  #resume(name: StreamName): void {
    for (const source of this.#sources[name]) source.resume()
  }
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
