import type { JobOptions } from '../args/job-options.ts'
import type { RankProcess } from '../spawn/rank-process.ts'
import type { Announcer } from './announcer.ts'
import type { Console } from './console.ts'
import type { Line, StreamName } from './line.ts'
import { makePresenter, type Presenter } from './presenter.ts'
import { openRankFiles, type RankFiles } from './rank-files.ts'
import { forwardOutput } from './rank-output.ts'
import { StderrTail } from './stderr-tail.ts'

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
