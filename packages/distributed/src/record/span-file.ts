import { closeSync } from 'node:fs'
import { join } from 'node:path'
import {
  choice,
  count,
  list,
  number,
  object,
  openOwnFile,
  text,
  writeWhole,
  type Of,
} from '@tsrun/core'
import { factNames, spanKinds, type SpanSink } from './spans.ts'

/*
 * The spans of one rank in a file: a JSON header line, then records. A record
 * begins with a byte: the number of its kind, or NAME. All numbers are little-endian.
 *
 *   a name   NAME, its number (2 bytes), its length (2), its bytes in UTF-8
 *   a span   kind, a bit for each present fact (2), number of the name or 0 (2), start (8), end (8),
 *            the facts (8 each)
 */

const SPANS_FORMAT = 'tsrun-spans'
const SPANS_VERSION = 1
/** The first byte of a name record. */
export const NAME = 255
/** Bytes of the fixed part of a name record. */
export const NAME_HEAD = 5
/** Bytes of the fixed part of a span record. */
export const SPAN_HEAD = 21
const LONGEST_NAME = 200
const MOST_NAMES = 65_535

/** Accepts a rank or host number. A larger number means a damaged header. */
const rank = count({ to: (1 << 20) - 1 })

/** Accepts the header line of a file of spans. */
export const spanFileHeader = object({
  format: choice(SPANS_FORMAT),
  version: choice(SPANS_VERSION),
  runId: text,
  restartCount: count(),
  rank,
  worldSize: rank,
  /** The number of the host in the job. */
  node: rank,
  host: text,
  pid: count(),
  /**
   * The same moment on two clocks: in milliseconds of `monotonicNow()`, and in milliseconds since
   * 1970.
   */
  monotonic: number,
  time: number,
  /** The names of the kinds and facts, in the order of their numbers in the records. */
  kinds: list(text, NAME),
  facts: list(text, 16),
})

/** The header line of a file of spans. */
export type SpanFileHeader = Of<typeof spanFileHeader>

/** The header fields that the writer provides. */
export type SpanFileOwner = Omit<SpanFileHeader, 'format' | 'version' | 'kinds' | 'facts'>

const BUFFER = 64 * 1024
const LARGEST = SPAN_HEAD + 8 * factNames.length + NAME_HEAD + LONGEST_NAME

export interface SpanFile extends SpanSink {
  /** Bytes of records written to the operating system. */
  readonly written: number
  /** Writes the buffer to the operating system. Flushed data survives if this process is killed. */
  flush(): void
  close(): void
}

/**
 * Appends spans to a file. Writes to the operating system when the buffer is full, and on `flush`.
 * A file error stops the writing, not the training.
 *
 * @throws the error of the file system if the file cannot be made
 */
export function openSpanFile(
  path: string,
  owner: SpanFileOwner,
  onError: (error: Error) => void,
): SpanFile {
  const buffer = Buffer.alloc(BUFFER)
  const view = new DataView(buffer.buffer, buffer.byteOffset, BUFFER)
  const names = new Map<string, number>()
  let fd: number | undefined = openOwnFile(path)
  let used = 0
  let written = 0
  const header = {
    format: SPANS_FORMAT,
    version: SPANS_VERSION,
    ...owner,
    kinds: spanKinds,
    facts: factNames,
  }
  writeWhole(fd, Buffer.from(`${JSON.stringify(header)}\n`))

  const close = (): void => {
    if (fd === undefined) return
    closeSync(fd)
    fd = undefined
  }

  const flush = (): void => {
    if (fd !== undefined) {
      try {
        writeWhole(fd, buffer.subarray(0, used))
        written += used
      } catch (error) {
        close()
        onError(error as Error)
      }
    }
    used = 0
  }

  /** Returns the number of a name, or 0 for no name. */
  const numberOf = (name: string): number => {
    const known = names.get(name)
    if (known !== undefined) return known
    if (names.size === MOST_NAMES) return 0
    const number = names.size + 1
    names.set(name, number)
    const length = buffer.write(name, used + NAME_HEAD, LONGEST_NAME)
    buffer[used] = NAME
    buffer.writeUInt16LE(number, used + 1)
    buffer.writeUInt16LE(length, used + 3)
    used += NAME_HEAD + length
    return number
  }

  return {
    get written() {
      return written
    },
    add: (kind, start, end, name, facts, at) => {
      if (used + LARGEST > BUFFER) flush()
      const number = name === undefined ? 0 : numberOf(name)
      let bits = 0
      let next = used + SPAN_HEAD
      for (let fact = 0; fact < factNames.length; fact++) {
        const value = facts[at + fact]!
        if (Number.isNaN(value)) continue
        bits |= 1 << fact
        view.setFloat64(next, value, true)
        next += 8
      }
      view.setUint8(used, kind)
      view.setUint16(used + 1, bits, true)
      view.setUint16(used + 3, number, true)
      view.setFloat64(used + 5, start, true)
      view.setFloat64(used + 13, end, true)
      used = next
    },
    flush,
    close,
  }
}

/** The name of the file for Perfetto, in the folder of `--trace`. */
export const TRACE_FILE = 'trace.json'

/** Returns the folder of a run's span files, inside the folder of `--trace`. */
export function spansFolder(directory: string, runId: string): string {
  return join(directory, 'spans', runId)
}

/**
 * The process whose spans a file holds, and the number of the file in the process's sequence, from
 * 0.
 */
interface SpanFilePlace {
  readonly restartCount: number
  readonly rank: number
  readonly pid: number
  readonly part: number
}

export function spanFileName({ restartCount, rank, pid, part }: SpanFilePlace): string {
  return `attempt-${restartCount}.rank-${rank}.${pid}${part === 0 ? '' : `.${part}`}.spans`
}

/**
 * Parses the name of a span file.
 * @returns undefined for any other name
 */
export function parseSpanFileName(name: string): SpanFilePlace | undefined {
  const match = /^attempt-(\d+)\.rank-(\d+)\.(\d+)(?:\.(\d+))?\.spans$/.exec(name)
  if (match === null) return undefined
  const [, restartCount, rank, pid, part = 0] = match
  return {
    restartCount: Number(restartCount),
    rank: Number(rank),
    pid: Number(pid),
    part: Number(part),
  }
}
