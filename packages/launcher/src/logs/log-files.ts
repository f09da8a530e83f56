import { closeSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import {
  choice,
  count,
  finite,
  makeOwnFolder,
  messageOf,
  object,
  openOwnFile,
  text,
  tsrError,
  where,
  writeWhole,
  type Of,
  type Rules,
} from '@tsrun/core'
import type { RankFacts } from '../args/log-prefix.ts'
import { withoutCodes, type Line, type StreamName } from './lines.ts'

/*
 * The log files of a run: DIR/RUN-ID/attempt_N/RANK/{stdout,stderr}.log with the output of a rank,
 * without colours, and index.jsonl with the times of the output. Its first line has the facts of the
 * rank. Each further line is [TIME, STREAM, BYTES]: at this time (milliseconds since 1970), the file
 * grew by this many bytes. The last line, {"endedAt": TIME}, is missing if the launcher was killed.
 * With `--log-max-size`, the folder OLDER has the files that were full.
 */

export const streamNames = ['stdout', 'stderr'] as const
export const INDEX_NAME = 'index.jsonl'
export const OLDER = 'older'
const INDEX_FORMAT = 1

/** Milliseconds since 1970, within the range of a Date. */
const time = finite({ from: 0, to: 8.64e15 })

export const indexHeader = object({
  format: choice(INDEX_FORMAT),
  runId: text,
  /** The template of `--log-prefix`; null: none. */
  prefix: text.nullable(),
  rank: count(),
  localRank: count(),
  worldSize: count(),
  role: text,
  host: text,
  node: count(),
  pid: count(),
  generation: count(),
  startedAt: time,
} satisfies Rules<RankFacts & { format: 1; runId: string; prefix: string | null }>).refine(
  ({ rank, worldSize }) => rank < worldSize,
)
export type IndexHeader = Of<typeof indexHeader>

export type IndexEntry = readonly [time: number, stream: StreamName, bytes: number]
export const indexEntry = where<IndexEntry>(
  (line) =>
    Array.isArray(line) &&
    line.length === 3 &&
    time.is(line[0]) &&
    (streamNames as readonly unknown[]).includes(line[1]) &&
    count().is(line[2]),
  'a time, a stream and a number of bytes',
)

export const indexEnd = object({ endedAt: time })

export function attemptDirectory(logDir: string, runId: string, restartCount: number): string {
  return join(logDir, runId, `attempt_${restartCount}`)
}

export type RankFiles = ReturnType<typeof openRankFiles>

/**
 * Opens the log files of a rank. Writes are synchronous, so the files have the last line before a crash.
 * If a write fails, for example on a full disk, logging stops and the job continues.
 *
 * @param limit - total bytes after which the files move to the folder OLDER and replace its files
 */
export function openRankFiles(
  folder: string,
  streams: readonly StreamName[],
  onFailure: (reason: string) => void,
  limit = Infinity,
) {
  const names = [INDEX_NAME, ...streams.map((stream) => `${stream}.log`)]
  let files = openAll(folder, names, onFailure)
  let header: object = {}
  let size = 0
  const note = (entry: unknown): number => files.write(INDEX_NAME, `${JSON.stringify(entry)}\n`)
  const close = (): void => {
    note({ endedAt: stamp() })
    files.close()
  }
  const rotate = (): void => {
    close()
    try {
      makeOwnFolder(join(folder, OLDER))
      // Move all files together, because the index counts the bytes of the log files.
      for (const name of names) renameSync(join(folder, name), join(folder, OLDER, name))
      files = openAll(folder, names, onFailure)
      size = 0
      note(header)
    } catch (error) {
      onFailure(messageOf(error))
    }
  }
  return {
    /** Writes the header of the index once the rank runs. */
    describe: (given: Omit<IndexHeader, 'format'>): void => {
      header = { format: INDEX_FORMAT, ...given }
      note(header)
    },
    write: (stream: StreamName, lines: readonly Line[]): void => {
      const bytes = files.write(`${stream}.log`, textOf(lines))
      if (bytes === 0) return
      size += bytes + note([stamp(), stream, bytes] satisfies IndexEntry)
      const isWhole = lines.at(-1)!.end === '\n'
      // Rotate at twice the limit even within a line, because a progress bar may never end its line.
      if (size >= (isWhole ? limit : 2 * limit)) rotate()
    },
    close,
  }
}

/**
 * Opens `filtered_stdout.log` and `filtered_stderr.log` of an attempt, for the streams with filters. Each
 * file gets the lines of all ranks that contain one of the filter texts.
 *
 * @param folder - if undefined, no file is opened
 */
export function openFilteredFiles(
  folder: string | undefined,
  filters: Readonly<Record<StreamName, readonly string[]>>,
  onFailure: (reason: string) => void,
) {
  const nameOf = (stream: StreamName): string => `filtered_${stream}.log`
  const names = streamNames.filter((stream) => filters[stream].length > 0).map(nameOf)
  const files =
    folder === undefined || names.length === 0 ? undefined : openAll(folder, names, onFailure)
  return {
    write: (stream: StreamName, lines: readonly Line[]): void => {
      if (files === undefined) return
      const wanted = lines.filter((line) =>
        filters[stream].some((text) => line.text.includes(text)),
      )
      if (wanted.length > 0) files.write(nameOf(stream), textOf(wanted))
    },
    close: (): void => {
      files?.close()
    },
  }
}

function textOf(lines: readonly Line[]): string {
  return lines.map(({ text, end }) => withoutCodes(text) + end).join('')
}

function openAll(folder: string, names: readonly string[], onFailure: (reason: string) => void) {
  const open = new Map<string, number>()
  const close = (): void => {
    for (const fd of open.values()) closeSync(fd)
    open.clear()
  }
  try {
    makeOwnFolder(folder)
    for (const name of names) open.set(name, openOwnFile(join(folder, name)))
  } catch (cause) {
    close()
    const reason = messageOf(cause)
    throw tsrError('ERR_TSR_LOG_DIRECTORY', { directory: folder, reason }, { cause })
  }
  return {
    close,
    write(name: string, text: string): number {
      const fd = open.get(name)
      if (fd === undefined) return 0
      const bytes = Buffer.from(text)
      try {
        writeWhole(fd, bytes)
      } catch (error) {
        close()
        onFailure(messageOf(error))
        return 0
      }
      return bytes.length
    },
  }
}

let last = 0

/** The time in milliseconds since 1970, strictly increasing, so that it preserves the order of lines. */
function stamp(): number {
  last = Math.max(Date.now(), Math.round(1000 * last + 1) / 1000)
  return last
}
