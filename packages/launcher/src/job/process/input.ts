import type { Readable, Writable } from 'node:stream'
import { statFields, type RankInput, type RankProcess } from './rank-process.ts'

/** The standard input of the process that runs a job. */
export interface InputSource {
  readonly isTerminal: boolean
  readonly open: () => Readable
}

export type JobInput = ReturnType<typeof distributeInput>

/**
 * Distributes the launcher's standard input to ranks. If only one rank reads a file or pipe, it
 * inherits the descriptor, so nothing is read ahead. The launcher reads terminals, because only it is
 * in the terminal's foreground process group (ranks would be stopped by SIGTTIN). It also reads input
 * that several ranks get, and sends each a copy.
 *
 * @param wanted - the rank that gets the input, or 'all' or 'none'
 */
export function distributeInput(source: InputSource, wanted: number | 'all' | 'none') {
  const readers = new Set<Writable>()
  const waiting = new Set<Writable>()
  let stream: Readable | undefined
  let hasEnded = false

  const flow = (): void => {
    const stops = readers.size === 0 || waiting.size > 0 || hasEnded
    if (stops || (source.isTerminal && isInBackground())) stream?.pause()
    else (stream ??= open()).resume()
  }

  const release = (reader: Writable): void => {
    waiting.delete(reader)
    flow()
  }

  const open = (): Readable => {
    const end = (): void => {
      hasEnded = true
      for (const reader of readers) reader.end()
    }
    return source
      .open()
      .on('data', (chunk: Buffer) => {
        for (const reader of readers) {
          if (reader.write(chunk)) continue
          waiting.add(reader)
          stream?.pause()
          reader.once('drain', () => {
            release(reader)
          })
        }
      })
      .on('end', end)
      .on('error', end)
  }

  return {
    kindFor(rank: number): RankInput {
      if (wanted !== 'all' && wanted !== rank) return 'ignore'
      return wanted === 'all' || source.isTerminal ? 'pipe' : 'inherit'
    },

    /** Starts writing to the rank, if it reads from a pipe. */
    add({ stdin }: RankProcess): void {
      if (stdin === null) return
      // The rank has closed its input or has ended.
      stdin
        .on('error', () => undefined)
        .on('close', () => {
          readers.delete(stdin)
          release(stdin)
        })
      if (hasEnded) {
        stdin.end()
        return
      }
      readers.add(stdin)
      flow()
    },

    /** Stops reading, for example before Ctrl-Z stops the launcher. */
    pause(): void {
      stream?.pause()
    },

    /** Resumes reading, unless the launcher is in the background now. */
    resume: flow,

    /** Closes the input, so that an open terminal or pipe does not keep the launcher running. */
    close(): void {
      stream?.destroy()
    },
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
