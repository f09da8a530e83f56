import { join } from 'node:path'
import type { LogFormat } from '../args/output-options.ts'
import { lineSplitter, type Line, type StreamName } from './lines.ts'
import { type LogPiece, type RankReader, attemptsIn, rankReader, ranksIn } from './log-reader.ts'
import { mergeTraces, TRACE_WINDOW, viewStream } from './traces.ts'
import { streamNames } from './log-files.ts'

interface RecordedOutputOptions {
  readonly format: LogFormat
  readonly colour: Readonly<Record<StreamName, boolean>>
  readonly write: (stream: StreamName, text: string) => void
}

/** The facts for a rank whose index is damaged or missing. */
const UNKNOWN = {
  prefix: null,
  localRank: 0,
  role: 'default',
  host: '',
  node: 0,
  pid: 0,
  generation: 0,
  startedAt: 0,
}

export type RecordedOutput = ReturnType<typeof recordedOutput>

/** Formats the recorded output of one attempt like the output of a running job. */
export function recordedOutput({ format, colour, write }: RecordedOutputOptions) {
  const outputs = new Map<string, ReturnType<typeof open>>()
  /** The time at which the lines that are being shown were written. */
  let now = 0
  const clock = (): number => now
  const merger = mergeTraces({
    colour: colour.stderr,
    write: (text) => {
      write('stderr', text)
    },
    clock,
  })

  const open = ({ rank, header }: RankReader, stream: StreamName) => {
    // Assume several ranks, so that the lines have a prefix.
    const facts = header ?? { ...UNKNOWN, rank, worldSize: rank + 2 }
    const prefix = facts.prefix ?? undefined
    const view = viewStream({ format, colour, prefix, clock }, facts, stream, merger, write)
    return { view, splitter: lineSplitter() }
  }

  return {
    take(reader: RankReader, { time, stream, bytes }: LogPiece): void {
      now = time
      merger.flush(TRACE_WINDOW)
      const key = `${reader.rank} ${stream}`
      const output = outputs.get(key) ?? open(reader, stream)
      outputs.set(key, output)
      output.view.take(output.splitter.push(bytes))
    },

    /** Shows the stack traces that were held back to merge them with traces of other ranks. */
    flush(): void {
      merger.flush()
    },

    /** Shows the incomplete last lines. */
    end(): void {
      for (const { view, splitter } of outputs.values()) {
        view.take(splitter.flush())
        view.end()
      }
      merger.flush()
    },
  }
}

/** Maximum characters of a line, as on the page of a running job. */
const LINE_LENGTH = 2000

/**
 * Reads the last lines of the last attempt of a run, in order of time.
 *
 * @param runs - the folder of the run, DIR/RUN-ID; empty if its output was not kept
 * @returns the lines of all ranks, and the number of lines read but omitted
 */
export function readLastLines(runs: readonly string[], most: number) {
  const attempt = Math.max(-1, ...runs.flatMap((run) => attemptsIn(run)))
  const ranks = runs.flatMap((run) => {
    const path = join(run, `attempt_${attempt}`)
    return ranksIn(path).map((rank) => linesOf(join(path, String(rank)), rank, most))
  })
  const all = ranks.flatMap(({ lines }) => lines).sort((a, b) => a.time - b.time)
  const kept = all.slice(-most)
  return {
    lines: kept.map(({ rank, stream, text }) => ({ rank, stream, text })),
    dropped: ranks.reduce((sum, rank) => sum + rank.dropped, all.length - kept.length),
  }
}

/** Copies the start of a long text, because a substring would keep the whole text in memory. */
function shortened(text: string): string {
  if (text.length <= LINE_LENGTH) return text
  return Buffer.from(`${text.slice(0, LINE_LENGTH)} …`).toString()
}

function linesOf(folder: string, rank: number, most: number) {
  const reader = rankReader(folder, rank, most)
  const splitters = { stdout: lineSplitter(), stderr: lineSplitter() }
  const lines: { rank: number; stream: StreamName; text: string; time: number }[] = []
  let [last, dropped] = [0, 0]
  const add = (stream: StreamName, found: readonly Line[]): void => {
    for (const { text } of found) lines.push({ rank, stream, text: shortened(text), time: last })
    // Bound the memory: a progress bar may have written many states since its last newline.
    if (lines.length > 2 * most) dropped += lines.splice(0, lines.length - most).length
  }
  const take = ({ time, stream, bytes }: LogPiece): void => {
    last = time
    add(stream, splitters[stream].push(bytes))
  }
  try {
    while (reader.peek() !== undefined) take(reader.next())
    for (const piece of reader.rest()) take(piece)
    for (const stream of streamNames) add(stream, splitters[stream].flush())
  } finally {
    reader.close()
  }
  return { lines, dropped }
}
