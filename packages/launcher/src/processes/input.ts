import type { Readable, Writable } from 'node:stream'
import { statFields, type RankInput, type RankProcess } from './rank-process.ts'

/** The standard input of the process that runs a job. */
export interface InputSource {
  readonly isTerminal: boolean
  /** Opens it for reading. */
  readonly open: () => Readable
}

/**
 * Gives ranks the standard input of the launcher. A single rank reads a file or pipe itself, so nothing
 * is read that it does not want. The launcher reads terminals, because only it is in the foreground process
 * group of the terminal (the ranks would be stopped by SIGTTIN), and what several ranks get, each a copy.
 */
export class JobInput {
  readonly #source: InputSource
  readonly #wanted: number | 'all' | 'none'
  readonly #readers = new Set<Writable>()
  readonly #waiting = new Set<Writable>()
  #stream: Readable | undefined
  #hasEnded = false

  /** @param wanted - the rank that gets it */
  constructor(source: InputSource, wanted: number | 'all' | 'none') {
    this.#source = source
    this.#wanted = wanted
  }

  /** How this rank gets its input. */
  kindFor(rank: number): RankInput {
    if (this.#wanted !== 'all' && this.#wanted !== rank) return 'ignore'
    return this.#wanted === 'all' || this.#source.isTerminal ? 'pipe' : 'inherit'
  }

  /** Starts to write to the rank, if the launcher does that. */
  add({ stdin }: Pick<RankProcess, 'stdin'>): void {
    if (stdin === null) return
    // The rank has closed its input, or has ended.
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

  /** Reads no further, for example before the launcher is stopped by Ctrl-Z. */
  pause(): void {
    this.#stream?.pause()
  }

  /** Reads on, unless the launcher is in the background now. */
  resume(): void {
    this.#flow()
  }

  /** Ends the reading, so that an open terminal or pipe does not keep the launcher running. */
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

  /** Waits for the slowest rank. */
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
 * Whether this process would be stopped by SIGTTIN when it reads from its terminal: another process group is
 * in the foreground. Without /proc it is taken to be in the foreground.
 */
function isInBackground(): boolean {
  const [, , group, , , foreground] = statFields('self') ?? []
  return group !== foreground
}
