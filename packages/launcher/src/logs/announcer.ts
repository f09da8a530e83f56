import type { LogFormat } from '../args/job-options.ts'
import type { Console } from './console.ts'

/** What the launcher itself says: sentences for people, events for programs. */
export class Announcer {
  readonly #console: Console
  readonly #format: LogFormat

  constructor(console: Console, format: LogFormat) {
    this.#console = console
    this.#format = format
  }

  /** A sentence; under `--log-format json` an event that carries it as `message`. */
  say(event: string, message: string, facts: object = {}): void {
    this.show(event, `tsrun: ${message}\n`, { message, ...facts })
  }

  /** A finished text on stderr; under `--log-format json` an event with the facts alone. */
  show(event: string, text: string, facts: object): void {
    if (this.#format === 'json') {
      const line = JSON.stringify({ time: new Date().toISOString(), event, ...facts })
      this.#console.write('stdout', line + '\n')
    } else if (text !== '') {
      this.#console.write('stderr', text)
    }
  }
}
