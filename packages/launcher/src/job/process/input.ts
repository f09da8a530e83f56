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
 * in the terminal's foreground process group (ranks would be stopped by SIGTTIN). The launcher
 * also reads input for several ranks, and sends a copy to each.
 *
 * @param wanted - the rank that gets the input, or 'all' or 'none'
 */
export function distributeInput(source: InputSource, wanted: number | 'all' | 'none') {
  const readers = new Set<Writable>()
  let stream: Readable | undefined
  let hasEnded = false

  const end = (): void => {
    hasEnded = true
    for (const reader of readers) reader.end()
  }
  const mayRead = (): boolean => !hasEnded && !(source.isTerminal && isInBackground())
  /** The slowest reader limits the speed of all readers. */
  const connect = (reader: Writable): void => {
    stream ??= source.open().setMaxListeners(0).on('end', end).on('error', end)
    stream.pipe(reader)
  }

  return {
    kindFor(rank: number): RankInput {
      if (wanted !== 'all' && wanted !== rank) return 'ignore'
      return wanted === 'all' || source.isTerminal ? 'pipe' : 'inherit'
    },

    /** Starts writing to the rank, if it reads from a pipe. */
    add({ stdin }: RankProcess): void {
      if (stdin === null) return
      readers.add(stdin)
      // The rank has closed its input or has ended.
      stdin.on('error', () => undefined).on('close', () => readers.delete(stdin))
      if (hasEnded) stdin.end()
      else if (mayRead()) connect(stdin)
    },

    /** Stops reading, for example before Ctrl-Z stops the launcher. */
    pause(): void {
      stream?.unpipe()
    },

    /** Resumes reading, unless the launcher is in the background now. */
    resume(): void {
      stream?.unpipe()
      if (mayRead()) readers.forEach(connect)
    },

    /** Closes the input, so that an open terminal or pipe does not keep the launcher running. */
    close(): void {
      stream?.destroy()
    },
  }
}

/** Whether this process would stop if it read from the terminal (SIGTTIN). False without /proc. */
function isInBackground(): boolean {
  const [, , group, , , foreground] = statFields('self') ?? []
  return group !== foreground
}
