import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { tsrError } from '@tsrun/core'
import type { JobOptions } from '../args/job-options.ts'
import type { Announcer, Console } from '../logs/console.ts'
import { LineSplitter, StderrTail, type Line, type StreamName } from '../logs/lines.ts'
import { makePresenter, type Presenter } from '../logs/presenter.ts'
import type { RankProcess } from '../processes/rank-process.ts'

/** Gets the lines of all ranks. */
export type RankLineReader = (rank: number, stream: StreamName, line: Line) => void

/** Where the output of the ranks of one attempt goes. */
export interface LogDestinations {
  readonly options: Pick<JobOptions, 'nproc' | 'logFormat' | 'ranks'>
  readonly worldSize: number
  readonly colour: Readonly<Record<StreamName, boolean>>
  /** The folder of the log files of this attempt, if there are any. */
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
  { directory, announcer }: Pick<LogDestinations, 'directory' | 'announcer'>,
  rank: number,
): RankFiles | undefined {
  if (directory === undefined) return undefined
  const folder = join(directory, String(rank))
  const open = new Map<StreamName, number>()
  try {
    mkdirSync(folder, { recursive: true })
    for (const stream of ['stdout', 'stderr'] as const) {
      open.set(stream, openSync(join(folder, `${stream}.log`), 'w'))
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
      const reason = (error as Error).message
      announcer.say('log-failure', `the log files of rank ${rank} end here: ${reason}`, { rank })
    }
  }
  return { write, close }
}

/** Forwards the output of a rank to the console, to its files and to the tail for the report. */
export function logRank(
  rank: RankProcess,
  files: RankFiles | undefined,
  to: LogDestinations,
): RankLog {
  const tail = new StderrTail()
  rank.onError = ({ brief, text }) => {
    if (brief) files?.write('stderr', { text, end: '\n' })
  }
  for (const stream of ['stdout', 'stderr'] as const) {
    const splitter = new LineSplitter()
    const presenter = presenterOf(rank.rank, stream, to)
    const show = (text: string): void => {
      if (presenter !== undefined && text !== '') to.console.write(presenter.output, text)
    }
    const take = (lines: readonly Line[]): void => {
      for (const line of lines) {
        if (stream === 'stderr') tail.push(line)
        files?.write(stream, line)
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
  stream: StreamName,
  { options, worldSize, colour }: LogDestinations,
): Presenter | undefined {
  if (options.ranks?.has(rank) === false) return undefined
  return makePresenter({ format: options.logFormat, worldSize, colour }, rank, stream)
}
