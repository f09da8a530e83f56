import { join } from 'node:path'
import type { RankFacts } from '../args/log-prefix.ts'
import type { LogFormat } from '../args/output-options.ts'
import { lineSplitter, type Line, type LineSplitter, type StreamName } from './lines.ts'
import { type LogPiece, type RankReader, attemptsIn, rankReader, ranksIn } from './log-reader.ts'
import { makePresenter, type Presenter } from './presenter.ts'
import { mergeTraces, TRACE_WINDOW } from './traces.ts'
import { streamNames } from './log-files.ts'

interface RecordedOutputOptions {
  readonly format: LogFormat
  /** Undefined: the prefix of the job. */
  readonly prefix: string | undefined
  readonly colour: Readonly<Record<StreamName, boolean>>
  /** Returns the number of ranks, in case no log file records it. */
  readonly worldSize: () => number
  readonly write: (stream: StreamName, text: string) => void
}

export type RecordedOutput = ReturnType<typeof recordedOutput>

/** Presents the recorded output of one attempt in the same way as the running job did. */
export function recordedOutput(options: RecordedOutputOptions) {
  const { format, colour, worldSize, write } = options
  const outputs = new Map<string, { splitter: LineSplitter; presenter: Presenter }>()
  /** The time of the lines that are being shown. */
  let now = 0
  const clock = (): number => now
  const merger = mergeTraces({
    colour: colour.stderr,
    write: (text) => {
      write('stderr', text)
    },
    clock,
  })
  const prefixOf = ({ header }: RankReader): string | undefined =>
    options.prefix ?? header?.prefix ?? undefined

  const makeOutput = (reader: RankReader, stream: StreamName) => {
    const { rank, header } = reader
    const facts: RankFacts = header ?? {
      rank,
      localRank: rank,
      worldSize: worldSize(),
      role: 'default',
      host: '',
      node: 0,
      pid: 0,
      generation: 0,
      startedAt: 0,
    }
    const how = { format, colour, prefix: prefixOf(reader), clock }
    return { splitter: lineSplitter(), presenter: makePresenter(how, facts, stream) }
  }

  const show = (
    reader: RankReader,
    stream: StreamName,
    presenter: Presenter,
    lines: readonly Line[],
  ): void => {
    const isPlain = format === 'pretty' && prefixOf(reader) === undefined
    if (stream === 'stderr' && isPlain && reader.header?.worldSize !== 1) {
      merger.take(reader.rank, lines, presenter.present)
    } else write(presenter.output, lines.map(presenter.present).join(''))
  }

  return {
    take(reader: RankReader, { time, stream, bytes }: LogPiece): void {
      now = time
      merger.flush(TRACE_WINDOW)
      const key = `${reader.rank} ${stream}`
      const output = outputs.get(key) ?? makeOutput(reader, stream)
      outputs.set(key, output)
      show(reader, stream, output.presenter, output.splitter.push(bytes))
    },

    /** Shows the stack traces that wait for other ranks. */
    flush(): void {
      merger.flush()
    },

    /** Shows the incomplete last lines. */
    end(readers: readonly RankReader[]): void {
      for (const [key, { splitter, presenter }] of outputs) {
        const [rank, stream] = key.split(' ') as [string, StreamName]
        const reader = readers.find((one) => one.rank === Number(rank))!
        show(reader, stream, presenter, splitter.flush())
        merger.flush()
        write(presenter.output, presenter.end())
      }
      merger.flush()
    },
  }
}

/** An output line of a rank. */
interface RecordedLine {
  readonly rank: number
  readonly stream: StreamName
  readonly text: string
}

/**
 * Reads the last lines of the last attempt of a run, in order of time.
 *
 * @param runs - its folders, DIR/RUN-ID, of all hosts
 * @returns the lines of all ranks, and the number of lines read but omitted
 */
export function readLastLines(runs: readonly string[], most: number) {
  const attempt = Math.max(-1, ...runs.flatMap((run) => attemptsIn(run)))
  const ranks = runs.flatMap((run) => {
    const path = join(run, `attempt_${attempt}`)
    return ranksIn(path).map((rank) => linesOf(path, rank, most))
  })
  const all = ranks.flatMap(({ lines }) => lines).sort((a, b) => a.time - b.time)
  const kept = all.slice(-most)
  const dropped = ranks.reduce((sum, rank) => sum + rank.dropped, all.length - kept.length)
  return {
    lines: kept.map(({ rank, stream, text }): RecordedLine => ({ rank, stream, text })),
    dropped,
  }
}

/** Maximum characters of a line, as on the page of a running job. */
const LINE_LENGTH = 2000

/** Copies the start of a long text, because a substring would keep the whole text in memory. */
function shortened(text: string): string {
  if (text.length <= LINE_LENGTH) return text
  return Buffer.from(`${text.slice(0, LINE_LENGTH)} …`).toString()
}

function linesOf(path: string, rank: number, most: number) {
  const reader = rankReader(join(path, String(rank)), rank, streamNames, most)
  const splitters = { stdout: lineSplitter(), stderr: lineSplitter() }
  const lines: (RecordedLine & { readonly time: number })[] = []
  let [last, dropped] = [0, 0]
  const add = (stream: StreamName, found: readonly Line[]): void => {
    for (const { text } of found) lines.push({ rank, stream, text: shortened(text), time: last })
    // Bound the memory.
    if (lines.length > 2 * most) dropped += lines.splice(0, lines.length - most).length
  }
  const take = ({ time, stream, bytes }: LogPiece): void => {
    last = Math.max(last, time)
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
