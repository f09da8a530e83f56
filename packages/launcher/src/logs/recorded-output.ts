import type { RankFacts } from '../args/log-prefix.ts'
import type { LogFormat } from '../args/output-options.ts'
import { LineSplitter, type Line, type StreamName } from './lines.ts'
import type { LogPiece, RankReader } from './log-reader.ts'
import { makePresenter, type Presenter } from './presenter.ts'
import { mergeTraces, TRACE_WINDOW } from './traces.ts'

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
    return { splitter: new LineSplitter(), presenter: makePresenter(how, facts, stream) }
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
