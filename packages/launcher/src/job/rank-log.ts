import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { tsrError } from '@tsrun/core'
import type { OutputOptions } from '../args/output-options.ts'
import type { Announcer, Console } from '../logs/console.ts'
import { LineSplitter, StderrTail, type Line, type StreamName } from '../logs/lines.ts'
import { makePresenter, type Presenter } from '../logs/presenter.ts'
import type { RankProcess } from '../processes/rank-process.ts'

/** Gets the lines of all ranks. */
export type RankLineReader = (rank: number, stream: StreamName, line: Line) => void

/** Where the output of the ranks of one attempt goes. */
export interface LogDestinations {
  readonly options: OutputOptions
  readonly worldSize: number
  readonly colour: Readonly<Record<StreamName, boolean>>
  /** The folder of the log files of this attempt, if there are any. */
  readonly directory: string | undefined
  /** The files of lines that all ranks share. */
  readonly filtered: FilteredLines
  readonly console: Console
  readonly announcer: Announcer
  readonly onLine?: RankLineReader
}

/** What is kept of one rank's output. */
export interface RankLog {
  readonly tail: StderrTail
  close(): void
}

/** A rank whose output is taken. */
export interface LoggedRank {
  readonly process: Pick<RankProcess, 'rank' | 'stdout' | 'stderr' | 'onError'>
  /** Its number on this host. */
  readonly localRank: number
}

/** Lines of all ranks, by what they contain. */
export interface FilteredLines {
  write(stream: StreamName, line: Line): void
  close(): void
}

/** The two log files of a rank: its lines, without prefix or colour. */
export interface RankFiles {
  write(stream: StreamName, line: Line): void
  close(): void
}

/** The folder of the log files of one attempt. */
export function attemptDirectory(logDir: string, runId: string, restartCount: number): string {
  return join(logDir, runId, `attempt_${restartCount}`)
}

/**
 * Opens the files of a rank before it starts: `<directory>/<rank>/{stdout,stderr}.log`. Writes are
 * synchronous, so the last line before a crash is in the file. When a write fails, for example because
 * the disk is full, the files end there and the job goes on.
 *
 * @throws ERR_TSR_LOG_DIRECTORY
 */
export function openFiles(
  {
    options,
    directory,
    announcer,
  }: Pick<LogDestinations, 'directory' | 'announcer'> & {
    readonly options: Pick<OutputOptions, 'destinations'>
  },
  rank: number,
  localRank: number,
): RankFiles | undefined {
  if (directory === undefined) return undefined
  const goesTo = options.destinations?.(localRank)
  const streams = streamNames.filter((stream) => goesTo?.[stream].isWritten ?? true)
  if (streams.length === 0) return undefined
  return openLogs(join(directory, String(rank)), streams, (reason) => {
    announcer.say('log-failure', `the log files of rank ${rank} end here: ${reason}`, { rank })
  })
}

/**
 * Opens `filtered_stdout.log` and `filtered_stderr.log` of an attempt, for the streams that have texts.
 *
 * @throws ERR_TSR_LOG_DIRECTORY
 */
export function openFiltered(
  filters: OutputOptions['filters'],
  directory: string | undefined,
  announcer: Announcer,
): FilteredLines {
  const streams = streamNames.filter((stream) => filters[stream].length > 0)
  if (directory === undefined || streams.length === 0) {
    return { write: () => undefined, close: () => undefined }
  }
  const files = openLogs(
    directory,
    streams,
    (reason) => {
      announcer.say('log-failure', `the files of filtered lines end here: ${reason}`, {})
    },
    'filtered_',
  )
  return {
    write: (stream, line) => {
      if (filters[stream].some((text) => line.text.includes(text))) files.write(stream, line)
    },
    close: () => {
      files.close()
    },
  }
}

const streamNames = ['stdout', 'stderr'] as const

/** @throws ERR_TSR_LOG_DIRECTORY */
function openLogs(
  folder: string,
  streams: readonly StreamName[],
  onFailure: (reason: string) => void,
  prefix = '',
): RankFiles {
  const open = new Map<StreamName, number>()
  try {
    mkdirSync(folder, { recursive: true })
    for (const stream of streams) {
      open.set(stream, openSync(join(folder, `${prefix}${stream}.log`), 'w'))
    }
  } catch (cause) {
    const reason = (cause as Error).message
    throw tsrError('ERR_TSR_LOG_DIRECTORY', { directory: folder, reason }, { cause })
  }
  const close = (): void => {
    for (const fd of open.values()) closeSync(fd)
    open.clear()
  }
  const write = (stream: StreamName, { text, end }: Line): void => {
    const fd = open.get(stream)
    if (fd === undefined) return
    try {
      writeSync(fd, stripVTControlCharacters(text) + end)
    } catch (error) {
      close()
      onFailure((error as Error).message)
    }
  }
  return { write, close }
}

/** Forwards the output of a rank to the console, to its files and to the tail for the report. */
export function logRank(
  { process: rank, localRank }: LoggedRank,
  files: RankFiles | undefined,
  to: LogDestinations,
): RankLog {
  const tail = new StderrTail()
  rank.onError = ({ silent, text }) => {
    if (silent) files?.write('stderr', { text, end: '\n' })
  }
  for (const stream of streamNames) {
    const splitter = new LineSplitter()
    const presenter = presenterOf(rank.rank, localRank, stream, to)
    const show = (text: string): void => {
      if (presenter !== undefined && text !== '') to.console.write(presenter.output, text)
    }
    const take = (lines: readonly Line[]): void => {
      for (const line of lines) {
        if (stream === 'stderr') tail.push(line)
        files?.write(stream, line)
        to.filtered.write(stream, line)
        to.onLine?.(rank.rank, stream, line)
      }
      // Lines that arrive together are written together.
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
    if (presenter !== undefined) to.console.throttle(presenter.output, rank[stream])
  }
  return { tail, close: () => files?.close() }
}

/** Undefined for a rank whose output is not shown. */
function presenterOf(
  rank: number,
  localRank: number,
  stream: StreamName,
  { options, worldSize, colour }: LogDestinations,
): Presenter | undefined {
  if (options.ranks?.has(rank) === false) return undefined
  if (options.localRanks?.has(localRank) === false) return undefined
  if (options.destinations?.(localRank)[stream].isShown === false) return undefined
  return makePresenter({ format: options.logFormat, worldSize, colour }, rank, stream)
}
