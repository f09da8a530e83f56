import { closeSync, existsSync, fstatSync, readSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { either, namesIn, openFile, parseJson } from '@tsrun/core'
import { usageError } from '../args/readers.ts'
import { lineSplitter, type StreamName } from './lines.ts'
import {
  INDEX_NAME,
  indexEnd,
  indexEntry,
  indexHeader,
  OLDER,
  streamNames,
  type IndexEntry,
  type IndexHeader,
} from './log-files.ts'

export interface LogPiece {
  /** Milliseconds since 1970; 0: unknown. */
  readonly time: number
  readonly stream: StreamName
  readonly bytes: Buffer
}

const BLOCK = 64 * 1024

const indexLine = either(indexHeader, indexEntry, indexEnd)

function openLog(path: string): number {
  try {
    return openFile(path)
  } catch (error) {
    throw usageError((error as Error).message, error)
  }
}

/** Reads a file that may still grow. A missing file counts as empty. */
function growingFile(path: string) {
  let fd: number | undefined
  const sizeOf = (): number => {
    if (fd === undefined && existsSync(path)) fd = openLog(path)
    return fd === undefined ? 0 : fstatSync(fd).size
  }
  /** Up to `length` bytes at a position, fewer at the end of the file. */
  const at = (position: number, length: number): Buffer => {
    // An index may be damaged, so its lengths are not trusted.
    const bytes = Buffer.allocUnsafe(Math.max(0, Math.min(length, sizeOf() - position)))
    return fd === undefined
      ? bytes
      : bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, position))
  }
  const file = {
    position: 0,
    /** Whether another file has this path now. */
    get isReplaced(): boolean {
      const now = statSync(path, { throwIfNoEntry: false })
      return fd !== undefined && now !== undefined && fstatSync(fd).ino !== now.ino
    },
    read(length: number): Buffer {
      const bytes = at(file.position, length)
      file.position += bytes.length
      return bytes
    },
    toLastLines(count: number): void {
      let end = sizeOf()
      // Count one more newline, because the newline at the end of the file ends the last line.
      let wanted = count + 1
      while (end > 0) {
        const from = Math.max(0, end - BLOCK)
        const block = at(from, end - from)
        for (let index = block.length; index > 0;) {
          index = block.lastIndexOf(10, index - 1)
          if (index < 0 || --wanted > 0) continue
          file.position = from + index + 1
          return
        }
        end = from
      }
    },
    close(): void {
      if (fd !== undefined) closeSync(fd)
    },
  }
  // Open the file now, because log rotation may replace it.
  sizeOf()
  return file
}

/** The files of a rank between two rotations. @param tail - read only this many last lines of each file */
function fileSet(folder: string, tail: number | undefined) {
  const files = {
    stdout: growingFile(join(folder, 'stdout.log')),
    stderr: growingFile(join(folder, 'stderr.log')),
  }
  if (tail !== undefined) for (const file of Object.values(files)) file.toLastLines(tail)
  return {
    index: growingFile(join(folder, INDEX_NAME)),
    files,
    /** Positions up to which the index describes the files. */
    described: { stdout: 0, stderr: 0 },
    entries: [] as IndexEntry[],
  }
}

export type RankReader = ReturnType<typeof rankReader>

/** Reads the output of one rank in one attempt, in order of time, from the oldest of its files. */
export function rankReader(folder: string, rank: number, tail?: number) {
  const older = join(folder, OLDER)
  const sets = [...(existsSync(older) ? [older] : []), folder].map((each) => fileSet(each, tail))
  const lines = lineSplitter(Infinity)
  let last = 0

  /** Reads a block of the index. @returns false if there is nothing to read */
  const readIndex = (): boolean => {
    const set = sets[0]!
    const block = set.index.read(BLOCK)
    if (block.length === 0) return false
    for (const { text } of lines.push(block)) {
      // The last line is incomplete if the disk was full.
      const entry = parseJson(text, indexLine)
      if (entry === undefined) continue
      if (indexEntry.is(entry)) set.entries.push(entry)
      else if (!indexEnd.is(entry)) reader.header ??= entry
    }
    return true
  }

  /** Continues with the next newer files of the rank. @returns false if there are no newer files */
  const toNextSet = (): boolean => {
    if (sets.length === 1) return false
    closeSet(sets.shift()!)
    return true
  }

  const reader = {
    rank,
    /** The facts of the rank; undefined until the index contains them. */
    header: undefined as IndexHeader | undefined,

    /** Opens the log files that replaced the current files at a rotation. */
    openNew(): void {
      if (sets.at(-1)!.index.isReplaced) sets.push(fileSet(folder, undefined))
    },

    /** The time of the next piece; undefined if there is none now. */
    peek(): number | undefined {
      for (;;) {
        const { entries, described, files } = sets[0]!
        const [entry] = entries
        if (entry === undefined) {
          if (!readIndex() && !toNextSet()) return undefined
          continue
        }
        const [time, stream, bytes] = entry
        const end = described[stream] + bytes
        if (end > files[stream].position) return time
        // Skip lines before the tail.
        described[stream] = end
        entries.shift()
      }
    },

    next(): LogPiece {
      const { entries, described, files } = sets[0]!
      const [time, stream, length] = entries.shift()!
      described[stream] += length
      last = time
      return { time, stream, bytes: files[stream].read(described[stream] - files[stream].position) }
    },

    /** Output missing from the index, because the launcher was killed or the disk was full. */
    *rest(): Generator<LogPiece> {
      for (const stream of streamNames) {
        for (;;) {
          const bytes = sets[0]!.files[stream].read(BLOCK)
          if (bytes.length === 0) break
          yield { time: last, stream, bytes }
        }
      }
    },

    close(): void {
      for (const set of sets) closeSet(set)
    },
  }
  return reader
}

function closeSet({ index, files }: ReturnType<typeof fileSet>): void {
  for (const file of [index, ...Object.values(files)]) file.close()
}

/** The attempts of a run, in order. @param run - folder of the run, DIR/RUN-ID */
export function attemptsIn(run: string): number[] {
  return numbersIn(run, /^attempt_(\d+)$/)
}

/** The ranks with files in the folder of an attempt. */
export function ranksIn(attempt: string): number[] {
  return numbersIn(attempt, /^(\d+)$/).filter((rank) =>
    existsSync(join(attempt, String(rank), INDEX_NAME)),
  )
}

function numbersIn(folder: string, pattern: RegExp): number[] {
  return namesIn(folder)
    .flatMap((name) => pattern.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b)
}
