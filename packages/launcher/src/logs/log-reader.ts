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
  streamNames,
  type IndexEntry,
  type IndexHeader,
} from './log-files.ts'

/** A piece of a log file. */
export interface LogPiece {
  /** Milliseconds since 1970; 0: unknown. */
  readonly time: number
  readonly stream: StreamName
  readonly bytes: Buffer
}

const BLOCK = 64 * 1024
/** Maximum bytes of a piece, because an index may have a longer one, or be damaged. */
const LONGEST_PIECE = 2 ** 20

const indexLine = either(indexHeader, indexEntry, indexEnd)

/** @throws ERR_TSR_USAGE */
function openLog(path: string): number {
  try {
    return openFile(path)
  } catch (error) {
    throw usageError((error as Error).message, error)
  }
}

/** A file that may still grow, read from a position. A missing file counts as empty. */
function growingFile(path: string) {
  let fd: number | undefined
  const open = (): number | undefined => {
    if (fd === undefined && existsSync(path)) fd = openLog(path)
    return fd
  }
  const sizeOf = (): number => (open() === undefined ? 0 : fstatSync(fd!).size)
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
    get size(): number {
      return sizeOf()
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
  open()
  return file
}

export type RankReader = ReturnType<typeof rankReader>

/**
 * Reads the output of one rank in one attempt, in order of time.
 *
 * @param streams - to read
 * @param tail - number of lines at the end of each file; default: all
 */
export function rankReader(
  folder: string,
  rank: number,
  streams: readonly StreamName[],
  tail?: number,
) {
  const hasIndex = existsSync(join(folder, INDEX_NAME))
  const index = growingFile(join(folder, INDEX_NAME))
  const files = {
    stdout: growingFile(join(folder, 'stdout.log')),
    stderr: growingFile(join(folder, 'stderr.log')),
  }
  if (tail !== undefined) for (const name of streams) files[name].toLastLines(tail)
  /** Positions up to which the index describes the files. */
  const described = { stdout: 0, stderr: 0 }
  const entries: IndexEntry[] = []
  const lines = lineSplitter(Infinity)
  let last = 0

  /** Reads a block of the index. @returns false if there is nothing to read */
  const readIndex = (): boolean => {
    const block = index.read(BLOCK)
    if (block.length === 0) return false
    for (const { text } of lines.push(block)) {
      // The last line is incomplete if the disk was full.
      const entry = parseJson(text, indexLine)
      if (entry === undefined) continue
      if (indexEntry.is(entry)) entries.push(entry)
      else if (indexEnd.is(entry)) reader.hasEnded = true
      else reader.header ??= entry
    }
    return true
  }

  /** Without an index, files are read one after the other. */
  const addUnindexed = (): boolean => {
    for (const stream of streams) {
      const { position, size } = files[stream]
      if (size <= position) continue
      described[stream] = position
      entries.push([0, stream, Math.min(BLOCK, size - position)])
      return true
    }
    return false
  }

  const reader = {
    rank,
    /** The facts of the rank, once the index exists. */
    header: undefined as IndexHeader | undefined,
    /** Whether the launcher has closed the files. */
    hasEnded: false,

    /** Whether the files were rotated: a new reader has to read the new ones. */
    get isReplaced(): boolean {
      return index.isReplaced
    },

    /** The time of the next piece; undefined if there is none now. */
    peek(): number | undefined {
      for (;;) {
        while (entries.length === 0 && (readIndex() || (!hasIndex && addUnindexed())));
        const [entry] = entries
        if (entry === undefined) return undefined
        const [time, stream, bytes] = entry
        const end = described[stream] + bytes
        if (streams.includes(stream) && end > files[stream].position) return time
        // Skip unwanted streams and lines before the tail.
        described[stream] = end
        entries.shift()
      }
    },

    next(): LogPiece {
      const [time, stream, length] = entries.shift()!
      described[stream] += length
      last = time
      const file = files[stream]
      const left = described[stream] - file.position
      const bytes = file.read(Math.min(left, LONGEST_PIECE))
      // Read the rest as another piece with the same time.
      if (left > LONGEST_PIECE && bytes.length > 0) entries.unshift([time, stream, 0])
      return { time, stream, bytes }
    },

    /** Output missing from the index, because the launcher was killed or the disk was full. */
    *rest(): Generator<LogPiece> {
      for (const stream of streams) {
        for (;;) {
          const bytes = files[stream].read(BLOCK)
          if (bytes.length === 0) break
          yield { time: last, stream, bytes }
        }
      }
    },

    close(): void {
      for (const file of [index, ...Object.values(files)]) file.close()
    },
  }
  return reader
}

/** The attempts of a run, in order. @param run - folder of the run, DIR/RUN-ID */
export function attemptsIn(run: string): number[] {
  return numbersIn(run, /^attempt_(\d+)$/)
}

/** The ranks with files in the folder of an attempt. */
export function ranksIn(attempt: string): number[] {
  return numbersIn(attempt, /^(\d+)$/).filter((rank) =>
    [INDEX_NAME, ...streamNames.map((stream) => `${stream}.log`)].some((name) =>
      existsSync(join(attempt, String(rank), name)),
    ),
  )
}

function numbersIn(folder: string, pattern: RegExp): number[] {
  return namesIn(folder)
    .flatMap((name) => pattern.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b)
}
