import type { RankFacts } from '../args/log-prefix.ts'
import type { LogFormat } from '../args/output-options.ts'
import { LineSplitter, type Line, type StreamName } from './lines.ts'
import type { LogPiece, RankReader } from './log-reader.ts'
import { makePresenter, type Presenter } from './presenter.ts'
import { TRACE_WINDOW, TraceMerger } from './traces.ts'

export interface RecordedOutputOptions {
  readonly format: LogFormat
  /** Undefined: the prefix of the job. */
  readonly prefix: string | undefined
  readonly colour: Readonly<Record<StreamName, boolean>>
  /** Returns the number of ranks, in case no log file records it. */
  readonly worldSize: () => number
  readonly write: (stream: StreamName, text: string) => void
}

/** Presents the recorded output of one attempt in the same way as the running job did. */
export class RecordedOutput {
  readonly #options: RecordedOutputOptions
  readonly #outputs = new Map<string, { splitter: LineSplitter; presenter: Presenter }>()
  readonly #merger: TraceMerger
  /** The time of the lines that are being shown. */
  #time = 0

  constructor(options: RecordedOutputOptions) {
    this.#options = options
    this.#merger = new TraceMerger({
      colour: options.colour.stderr,
      write: (text) => {
        options.write('stderr', text)
      },
      clock: () => this.#time,
    })
  }

  take(reader: RankReader, { time, stream, bytes }: LogPiece): void {
    this.#time = time
    this.#merger.flush(TRACE_WINDOW)
    const key = `${reader.rank} ${stream}`
    let output = this.#outputs.get(key)
    if (output === undefined) {
      output = { splitter: new LineSplitter(), presenter: this.#present(reader, stream) }
      this.#outputs.set(key, output)
    }
    this.#show(reader, stream, output.presenter, output.splitter.push(bytes))
  }

  /** Shows the stack traces that wait for other ranks. */
  flush(): void {
    this.#merger.flush()
  }

  /** Shows the incomplete last lines. */
  end(readers: readonly RankReader[]): void {
    for (const [key, { splitter, presenter }] of this.#outputs) {
      const [rank, stream] = key.split(' ') as [string, StreamName]
      const reader = readers.find((one) => one.rank === Number(rank))!
      this.#show(reader, stream, presenter, splitter.flush())
      this.#merger.flush()
      this.#options.write(presenter.output, presenter.end())
    }
    this.#merger.flush()
  }

  #present({ rank, header }: RankReader, stream: StreamName): Presenter {
    const { format, colour } = this.#options
    const prefix = this.#options.prefix ?? header?.prefix ?? undefined
    const facts: RankFacts = header ?? {
      ...{ rank, localRank: rank, worldSize: this.#options.worldSize(), role: 'default' },
      ...{ host: '', node: 0, pid: 0, generation: 0, startedAt: 0 },
    }
    return makePresenter({ format, colour, prefix, clock: () => this.#time }, facts, stream)
  }

  #show(
    { rank, header }: RankReader,
    stream: StreamName,
    presenter: Presenter,
    lines: readonly Line[],
  ): void {
    const present = (line: Line): string => presenter.present(line)
    const { format, prefix = header?.prefix ?? undefined } = this.#options
    const isMerged = format === 'pretty' && prefix === undefined && header?.worldSize !== 1
    if (stream === 'stderr' && isMerged) this.#merger.take(rank, lines, present)
    else this.#options.write(presenter.output, lines.map(present).join(''))
  }
}
