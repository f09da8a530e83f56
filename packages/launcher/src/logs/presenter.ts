import type { LogFormat } from '../args/job-options.ts'
import { inRankColour } from './colour.ts'
import { prettyLibraryLine } from './library-line.ts'
import type { Line, StreamName } from './line.ts'
import { ProgressCollapser } from './progress.ts'

/** Turns the pieces of one stream of one rank into what the console gets; '' for nothing. */
export interface Presenter {
  /** Where it goes: JSON is one stream for both. */
  readonly output: StreamName
  present(line: Line): string
  /** What is still held back at the end of the stream. */
  end(): string
}

export interface Presentation {
  readonly format: LogFormat
  readonly worldSize: number
  readonly colour: Readonly<Record<StreamName, boolean>>
}

/** How the output of `rank` appears under `--log-format`. */
export function makePresenter(how: Presentation, rank: number, stream: StreamName): Presenter {
  if (how.format === 'json') return inWholeLines('stdout', (text) => jsonLine(rank, stream, text))
  const make = how.format === 'raw' ? (text: string) => text : libraryLines(stream)
  // A single rank has the console to itself: progress bars may move in place.
  if (how.worldSize === 1) return asWritten(stream, make)
  if (how.format === 'raw') return inWholeLines(stream, (text) => `${text}\n`)
  const prefix = rankPrefix(rank, how.worldSize, how.colour[stream])
  return inWholeLines(stream, (text) => `${prefix}${make(text).replaceAll('\n', `\n${prefix}`)}\n`)
}

/** `[rank 3]  `: all prefixes of a job are equally wide. */
export function rankPrefix(rank: number, worldSize: number, colour: boolean): string {
  const tag = `[rank ${rank}]`
  const padding = ' '.repeat(String(worldSize - 1).length - String(rank).length + 1)
  return (colour ? inRankColour(tag, rank) : tag) + padding
}

function libraryLines(stream: StreamName): (text: string) => string {
  return stream === 'stdout' ? (text) => text : (text) => prettyLibraryLine(text) ?? text
}

function jsonLine(rank: number, stream: StreamName, line: string): string {
  return JSON.stringify({ time: new Date().toISOString(), rank, stream, line }) + '\n'
}

function asWritten(output: StreamName, make: (text: string) => string): Presenter {
  return { output, present: ({ text, end }) => make(text) + end, end: () => '' }
}

function inWholeLines(output: StreamName, make: (text: string) => string): Presenter {
  const collapser = new ProgressCollapser()
  const show = (text: string | undefined): string => (text === undefined ? '' : make(text))
  return {
    output,
    present: (line) => show(collapser.push(line)),
    end: () => show(collapser.flush()),
  }
}
