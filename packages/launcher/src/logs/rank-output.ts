import type { RankProcess } from '../spawn/rank-process.ts'
import type { Console } from './console.ts'
import { LineSplitter } from './line-splitter.ts'
import type { Line, StreamName } from './line.ts'
import type { Presenter } from './presenter.ts'

/** Where the lines of one rank go. */
export interface OutputSinks {
  readonly console: Console
  /** Undefined: this rank does not reach the console. */
  readonly presenters: Readonly<Record<StreamName, Presenter>> | undefined
  /** Everybody else who reads the lines: files, the tail. */
  readonly readers: readonly ((stream: StreamName, line: Line) => void)[]
}

/** Forwards both streams of a rank, line by line, until they end. */
export function forwardOutput(rank: RankProcess, sinks: OutputSinks): void {
  for (const stream of ['stdout', 'stderr'] as const) {
    const splitter = new LineSplitter()
    const presenter = sinks.presenters?.[stream]
    const show = (text: string): void => {
      if (presenter !== undefined && text !== '') sinks.console.write(presenter.output, text)
    }
    const take = (lines: readonly Line[]): void => {
      for (const line of lines) for (const read of sinks.readers) read(stream, line)
      // One write for a burst of lines.
      if (presenter !== undefined) show(lines.map((line) => presenter.present(line)).join(''))
    }
    rank[stream]
      .on('data', (chunk: Buffer) => {
        take(splitter.push(chunk))
      })
      .on('end', () => {
        take(splitter.flush())
        if (presenter !== undefined) show(presenter.end())
      })
    if (presenter !== undefined) sinks.console.throttle(presenter.output, rank[stream])
  }
}
