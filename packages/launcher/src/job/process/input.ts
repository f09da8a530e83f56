import type { Readable, Writable } from 'node:stream'
import { statFields, type RankInput, type RankProcess } from './rank-process.ts'

/** The standard input of the process that runs a job. */
export interface InputSource {
  readonly isTerminal: boolean
  readonly open: () => Readable
}

/**
 * Distributes the launcher's standard input to ranks. If only one rank reads a file or pipe, it
 * inherits the descriptor, so nothing is read ahead. The launcher reads terminals, because only it is
 * in the terminal's foreground process group (ranks would be stopped by SIGTTIN). It also reads input
 * that several ranks get, and sends each a copy.
 */
export class JobInput {
  readonly #source: InputSource
  readonly #wanted: number | 'all' | 'none'
  readonly #readers = new Set<Writable>()
  readonly #waiting = new Set<Writable>()
  #stream: Readable | undefined
  #hasEnded = false

  /** @param wanted - the ranks that get the input */
  constructor(source: InputSource, wanted: number | 'all' | 'none') {
    this.#source = source
    this.#wanted = wanted
  }

  kindFor(rank: number): RankInput {
    if (this.#wanted !== 'all' && this.#wanted !== rank) return 'ignore'
    return this.#wanted === 'all' || this.#source.isTerminal ? 'pipe' : 'inherit'
  }

  /** Starts writing to the rank, if it reads from a pipe. */
  add({ stdin }: Pick<RankProcess, 'stdin'>): void {
    if (stdin === null) return
    // The rank has closed its input or has ended.
    stdin
      .on('error', () => undefined)
      .on('close', () => {
        this.#readers.delete(stdin)
        this.#release(stdin)
      })
    if (this.#hasEnded) {
      stdin.end()
      return
    }
    this.#readers.add(stdin)
    this.#flow()
  }

  /** Stops reading, for example before Ctrl-Z stops the launcher. */
  pause(): void {
    this.#stream?.pause()
  }

  /** Resumes reading, unless the launcher is in the background now. */
  resume(): void {
    this.#flow()
  }

  /** Closes the input, so that an open terminal or pipe does not keep the launcher running. */
  close(): void {
    this.#stream?.destroy()
  }

  #flow(): void {
    const stops = this.#readers.size === 0 || this.#waiting.size > 0 || this.#hasEnded
    if (stops || (this.#source.isTerminal && isInBackground())) this.#stream?.pause()
    else this.#opened().resume()
  }

  #opened(): Readable {
    if (this.#stream !== undefined) return this.#stream
    const stream = this.#source.open()
    const end = (): void => {
      this.#hasEnded = true
      for (const reader of this.#readers) reader.end()
    }
    stream
      .on('data', (chunk: Buffer) => {
        for (const reader of this.#readers) if (!reader.write(chunk)) this.#wait(reader)
      })
      .on('end', end)
      .on('error', end)
    this.#stream = stream
    return stream
  }

  #wait(reader: Writable): void {
    this.#waiting.add(reader)
    this.#stream?.pause()
    reader.once('drain', () => {
      this.#release(reader)
    })
  }

  #release(reader: Writable): void {
    this.#waiting.delete(reader)
    this.#flow()
  }
}

/**
 * Whether reading from the terminal would stop this process with SIGTTIN, because another process group
 * is in the foreground. False without /proc.
 */
function isInBackground(): boolean {
  const [, , group, , , foreground] = statFields('self') ?? []
  return group !== foreground
}
