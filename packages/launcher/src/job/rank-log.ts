import { hostname } from 'node:os'
import { join } from 'node:path'
import type { RankFacts } from '../args/log-prefix.ts'
import type { OutputOptions } from '../args/output-options.ts'
import type { Announcer, Console } from '../logs/console.ts'
import { LineSplitter, StderrTail, type Line, type StreamName } from '../logs/lines.ts'
import {
  openFilteredFiles,
  openRankFiles,
  streamNames,
  type LineFiles,
  type RankFiles,
} from '../logs/log-files.ts'
import { makePresenter, type Presenter } from '../logs/presenter.ts'
import { TRACE_WINDOW, TraceMerger } from '../logs/traces.ts'
import type { RankProcess } from './process/rank-process.ts'

/** Receives the lines of all ranks. */
export type RankLineReader = (rank: number, stream: StreamName, line: Line) => void

/** Where the output of the ranks of one attempt goes. */
export interface LogDestinations {
  readonly output: OutputOptions
  readonly role: string
  readonly worldSize: number
  readonly runId: string
  /** The number of the attempt. */
  readonly generation: number
  /** The number of this launcher. */
  readonly node: number
  readonly colour: Readonly<Record<StreamName, boolean>>
  /** The folder of the log files of this attempt, if there are any. */
  readonly directory: string | undefined
  /** The files of lines that all ranks share. */
  readonly filtered: LineFiles
  /** Merges equal stack traces of several ranks; undefined: each rank shows its own. */
  readonly merger: TraceMerger | undefined
  readonly console: Console
  readonly announcer: Announcer
  readonly onLine?: RankLineReader
}

/** The log of one rank. */
export interface RankLog {
  readonly tail: StderrTail
  close(): void
}

export interface LoggedRank {
  readonly process: Pick<RankProcess, 'rank' | 'pid' | 'stdout' | 'stderr' | 'onError'>
  /** Its number on this host. */
  readonly localRank: number
}

/**
 * Opens the files of a rank before it starts: `<directory>/<rank>/{stdout,stderr}.log`.
 *
 * @throws ERR_TSR_LOG_DIRECTORY
 */
export function openFiles(
  {
    output,
    directory,
    announcer,
  }: Pick<LogDestinations, 'directory' | 'announcer'> & {
    readonly output: Pick<OutputOptions, 'destinations' | 'directory' | 'logMaxSize'>
  },
  rank: number,
  localRank: number,
): RankFiles | undefined {
  if (directory === undefined) return undefined
  const goesTo = output.destinations?.(localRank)
  const streams = streamNames.filter((stream) => goesTo?.[stream].isWritten ?? true)
  if (streams.length === 0) return undefined
  const fail = (reason: string): void => {
    // Nobody has asked for the logs that are kept by default.
    if (output.directory === undefined) return
    announcer.say('log-failure', `the log files of rank ${rank} end here: ${reason}`, { rank })
  }
  try {
    return openRankFiles(join(directory, String(rank)), streams, fail, output.logMaxSize)
  } catch (error) {
    if (output.directory === undefined) return undefined
    throw error
  }
}

/**
 * Opens `filtered_stdout.log` and `filtered_stderr.log` of an attempt, for the streams with filters. They
 * get the lines of all ranks that contain one of the texts.
 *
 * @throws ERR_TSR_LOG_DIRECTORY
 */
export function openFiltered(
  filters: OutputOptions['filters'],
  directory: string | undefined,
  announcer: Announcer,
): LineFiles {
  const streams = streamNames.filter((stream) => filters[stream].length > 0)
  if (directory === undefined || streams.length === 0) {
    return { write: () => undefined, close: () => undefined }
  }
  const files = openFilteredFiles(directory, streams, (reason) => {
    announcer.say('log-failure', `the files of filtered lines end here: ${reason}`, {})
  })
  return {
    write: (stream, lines) => {
      const texts = filters[stream]
      if (texts.length === 0) return
      const wanted = lines.filter((line) => texts.some((text) => line.text.includes(text)))
      if (wanted.length > 0) files.write(stream, wanted)
    },
    close: () => {
      files.close()
    },
  }
}

/** Merges equal stack traces of several ranks; undefined if each line has to stay separate. */
export function openMerger(
  { format, prefix }: OutputOptions,
  worldSize: number,
  colour: boolean,
  console: Console,
): TraceMerger | undefined {
  if (format !== 'pretty' || prefix !== undefined || worldSize === 1) return undefined
  const merger = new TraceMerger({
    colour,
    write: (text) => {
      console.write('stderr', text)
    },
    clock: () => performance.now(),
    onHold: () => {
      setTimeout(() => {
        merger.flush(TRACE_WINDOW)
      }, TRACE_WINDOW + 1).unref()
    },
  })
  return merger
}

/** Forwards the output of a rank to the console, to its log files and to the tail for the report. */
export function logRank(
  { process: rank, localRank }: LoggedRank,
  files: RankFiles | undefined,
  to: LogDestinations,
): RankLog {
  const { output, role, worldSize, generation, node, runId, merger } = to
  const tail = new StderrTail()
  const facts: RankFacts = {
    ...{ rank: rank.rank, localRank, worldSize, role, host: hostname(), node },
    ...{ pid: rank.pid, generation, startedAt: Date.now() },
  }
  files?.describe({ runId, prefix: output.prefix ?? null, ...facts })
  rank.onError = ({ silent, text }) => {
    if (silent) files?.write('stderr', [{ text, end: '\n' }])
  }
  for (const stream of streamNames) {
    const splitter = new LineSplitter()
    const presenter = presenterOf(facts, stream, to)
    const show = (text: string): void => {
      if (presenter !== undefined && text !== '') to.console.write(presenter.output, text)
    }
    const take = (lines: readonly Line[]): void => {
      if (lines.length === 0) return
      if (stream === 'stderr') for (const line of lines) tail.push(line)
      files?.write(stream, lines)
      to.filtered.write(stream, lines)
      if (to.onLine !== undefined) for (const line of lines) to.onLine(rank.rank, stream, line)
      if (presenter === undefined) return
      // Write lines that arrive together in one call.
      const present = (line: Line): string => presenter.present(line)
      if (stream === 'stderr' && merger !== undefined) merger.take(rank.rank, lines, present)
      else show(lines.map(present).join(''))
    }
    rank[stream]
      .on('data', (chunk: Buffer) => {
        take(splitter.push(chunk))
      })
      .on('end', () => {
        take(splitter.flush())
        if (presenter === undefined) return
        if (stream === 'stderr' && merger !== undefined)
          merger.end(rank.rank, () => presenter.end())
        else show(presenter.end())
      })
    if (presenter !== undefined) to.console.throttle(presenter.output, rank[stream])
  }
  return { tail, close: () => files?.close() }
}

/** Undefined for a rank whose output is not shown. */
function presenterOf(
  facts: RankFacts,
  stream: StreamName,
  { output, colour }: LogDestinations,
): Presenter | undefined {
  const { format, prefix, destinations } = output
  if (output.ranks?.has(facts.rank) === false) return undefined
  if (output.localRanks?.has(facts.localRank) === false) return undefined
  if (destinations?.(facts.localRank)[stream].isShown === false) return undefined
  return makePresenter({ format, colour, prefix }, facts, stream)
}
