import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { tsrError } from '@tsrun/core'
import type { JobOptions } from '../args/job-options.ts'
import type { Announcer, Console } from '../logs/console.ts'
import { type Line, type StreamName, StderrTail, LineSplitter } from '../logs/lines.ts'
import { makePresenter, type Presenter } from '../logs/presenter.ts'
import type { RankProcess } from '../processes/rank-process.ts'

/** Gets the lines of all ranks. */
export type RankLineReader = (rank: number, stream: StreamName, line: Line) => void

/** Where the output of the ranks of one life goes. */
export interface LogDestinations {
  readonly options: Pick<JobOptions, 'nproc' | 'logFormat' | 'ranks'>
  readonly worldSize: number
  readonly colour: Readonly<Record<StreamName, boolean>>
  /** Directory of this life's log files. */
  readonly directory: string | undefined
  readonly console: Console
  readonly announcer: Announcer
  readonly onLine?: RankLineReader
}

/** What is kept of one rank's output. */
export interface RankLog {
  readonly tail: StderrTail
  close(): void
}

/**
 * Opens the files of a rank before it starts.
 *
 * @throws ERR_TSR_LOG_DIRECTORY
 */
export function openFiles(to: LogDestinations, rank: number): RankFiles | undefined {
  if (to.directory === undefined) return undefined
  return openRankFiles(to.directory, rank, (reason) => {
    to.announcer.say('log-failure', `the log files of rank ${rank} end here: ${reason}`, { rank })
  })
}

/** Forwards the output of a rank to the console, its files and the tail for the report. */
export function logRank(
  process: RankProcess,
  files: RankFiles | undefined,
  to: LogDestinations,
): RankLog {
  const tail = new StderrTail()
  process.onError = ({ brief, text }) => {
    if (brief) files?.write('stderr', { text, end: '\n' })
  }
  forwardOutput(process, {
    console: to.console,
    presenters: makePresenters(to, process.rank),
    readers: [
      (stream, line) => {
        if (stream === 'stderr') tail.push(line)
        files?.write(stream, line)
        to.onLine?.(process.rank, stream, line)
      },
    ],
  })
  return { tail, close: () => files?.close() }
}

function makePresenters(
  { options, worldSize, colour }: LogDestinations,
  rank: number,
): Record<StreamName, Presenter> | undefined {
  if (options.ranks?.has(rank) === false) return undefined
  const how = { format: options.logFormat, worldSize, colour }
  return { stdout: makePresenter(how, rank, 'stdout'), stderr: makePresenter(how, rank, 'stderr') }
}

/** Where the lines of one rank go. */
export interface OutputSinks {
  readonly console: Console
  /** Undefined: this rank does not reach the console. */
  readonly presenters: Readonly<Record<StreamName, Presenter>> | undefined
  /** Everybody else who reads the lines: files, the tail. */
  readonly readers: readonly ((stream: StreamName, line: Line) => void)[]
}

/** Forwards both streams of a rank, line by line, until they end. */
function forwardOutput(rank: RankProcess, sinks: OutputSinks): void {
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

/** The two log files of a rank: its lines, without prefix or colour. */
export interface RankFiles {
  write(stream: StreamName, line: Line): void
  close(): void
}

/** Where the files of one life of a job lie. */
export function attemptDirectory(logDir: string, runId: string, restartCount: number): string {
  return join(logDir, runId, `attempt_${restartCount}`)
}

/**
 * Opens `<directory>/<rank>/{stdout,stderr}.log`. Writes are synchronous, so that the last line
 * before a crash is there. A disk that fills up ends the files, not the job: `onFailure` is told.
 *
 * @throws ERR_TSR_LOG_DIRECTORY
 */
function openRankFiles(
  directory: string,
  rank: number,
  onFailure: (reason: string) => void,
): RankFiles {
  const own = join(directory, String(rank))
  const open = new Map<StreamName, number>()
  try {
    mkdirSync(own, { recursive: true })
    for (const stream of ['stdout', 'stderr'] as const) {
      open.set(stream, openSync(join(own, `${stream}.log`), 'w'))
    }
  } catch (cause) {
    const reason = (cause as Error).message
    throw tsrError('ERR_TSR_LOG_DIRECTORY', { directory, reason }, { cause })
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
