import { closeSync, readSync } from 'node:fs'
import { openFile, parseJson } from '@tsrun/core'
import {
  factNames,
  spanKinds,
  NAME,
  NAME_HEAD,
  SPAN_HEAD,
  spanFileHeader,
  type Span,
  type SpanFileHeader,
} from '@tsrun/distributed/record'
import { noticedEnd } from './division.ts'

const LONGEST_HEADER = 16 * 1024
/** Size of a part in bytes. Showing a step decodes whole parts, so smaller parts are faster. */
const PART = 2 ** 18

/**
 * Reads the spans that a rank has written, in parts. Skips an incomplete last record, and everything
 * after a damaged record.
 */
export class SpanFileReader {
  readonly header: SpanFileHeader
  /** Offset of the first record. */
  readonly begin: number
  readonly #path: string

  /** @throws Error if the file is no span file, or is of another version */
  constructor(path: string) {
    this.#path = path
    const fd = openFile(path)
    try {
      const head = readAt(fd, 0, LONGEST_HEADER)
      const end = head.indexOf(10)
      const header = parseJson(head.toString('utf8', 0, Math.max(0, end)), spanFileHeader)
      if (header === undefined) {
        throw new Error('not the spans of a rank, or of another version of tsrun')
      }
      this.header = header
      this.begin = end + 1
    } finally {
      closeSync(fd)
    }
  }

  *spans(): Generator<Span, void, undefined> {
    for (const { spans } of this.parts()) yield* spans
  }

  /**
   * Yields the spans of successive parts of the file.
   *
   * @param most - maximum bytes of a part
   * @param decode - a decoder that has read the names, unless `from` is the beginning of the file
   * @param from - start of a record
   * @param isSkipped - whether to skip the spans, which is much faster
   */
  *parts(
    most = PART,
    decode = spanDecoder(this.header),
    from = this.begin,
    to = Infinity,
    isSkipped = false,
  ): Generator<SpanFilePart, void, undefined> {
    const fd = openFile(this.#path)
    try {
      for (let at = from; at < to;) {
        const spans: Span[] = []
        const used = decode(readAt(fd, at, Math.min(most, to - at)), isSkipped ? undefined : spans)
        if (used === 0) return
        yield { spans, from: at, to: at + used }
        at += used
      }
    } finally {
      closeSync(fd)
    }
  }
}

/** Reads up to `most` bytes of a file from a position. */
function readAt(fd: number, position: number, most: number): Buffer {
  const bytes = Buffer.allocUnsafe(most)
  return bytes.subarray(0, readSync(fd, bytes, 0, most, position))
}

/** Whole records between two positions of a file. */
interface SpanFilePart {
  readonly from: number
  readonly to: number
  readonly spans: readonly Span[]
}

/**
 * Indexes a file by time.
 *
 * @param visit - called once for each span of the file
 * @returns a function that returns the spans that overlap an interval, or whose end was noticed in the
 *   interval; it reads only the parts of the file that may contain such spans
 */
export function indexSpans(
  file: SpanFileReader,
  visit: (span: Span) => void,
): (start: number, end: number) => Span[] {
  const decode = spanDecoder(file.header)
  const parts = Array.from(file.parts(PART, decode), ({ from, to, spans }) => {
    let [start, end] = [Infinity, -Infinity]
    for (const span of spans) {
      start = Math.min(start, span.start)
      end = Math.max(end, noticedEnd(span))
      visit(span)
    }
    return { from, to, start, end }
  })
  return (start, end) => {
    const found: Span[] = []
    for (const part of parts) {
      if (part.start > end || part.end < start) continue
      for (const { spans } of file.parts(PART, decode, part.from, part.to)) {
        for (const span of spans)
          if (span.start <= end && noticedEnd(span) >= start) found.push(span)
      }
    }
    return found
  }
}

/**
 * Returns a function that decodes records of one file, up to an incomplete or damaged one. It puts their
 * spans in the list; without a list it skips them, which is much faster. It returns the number of bytes in
 * the decoded records.
 */
export function spanDecoder({ rank, ...header }: SpanFileHeader) {
  // A newer tsrun may write kinds and facts that this version does not know.
  const kinds = header.kinds.map((kind) => spanKinds.find((known) => known === kind))
  const facts = header.facts.map((fact) => factNames.find((known) => known === fact))
  const names: (string | undefined)[] = []

  const readName = (bytes: Buffer, at: number) => {
    if (at + NAME_HEAD > bytes.length) return Infinity
    const next = at + NAME_HEAD + bytes.readUInt16LE(at + 3)
    if (next <= bytes.length) {
      names[bytes.readUInt16LE(at + 1)] = bytes.toString('utf8', at + NAME_HEAD, next)
    }
    return next
  }
  /** Returns the end of a span's record; Infinity if the record is incomplete or damaged. */
  const endOf = (bytes: Buffer, at: number) => {
    if (bytes[at]! >= kinds.length || at + SPAN_HEAD > bytes.length) return Infinity
    const bits = bytes.readUInt16LE(at + 1)
    if (bits >= 1 << facts.length) return Infinity
    let present = 0
    for (let rest = bits; rest > 0; rest &= rest - 1) present++
    return at + SPAN_HEAD + 8 * present
  }
  const read = (bytes: Buffer, at: number) => {
    const kind = kinds[bytes[at]!]
    const start = bytes.readDoubleLE(at + 5)
    const end = bytes.readDoubleLE(at + 13)
    if (kind === undefined || !(end >= start) || !Number.isFinite(end - start)) return undefined
    const name = names[bytes.readUInt16LE(at + 3)]
    const span: Record<string, unknown> = { rank, kind, start, end }
    if (name !== undefined) span['name'] = name
    const bits = bytes.readUInt16LE(at + 1)
    let next = at + SPAN_HEAD
    for (let fact = 0; fact < facts.length; fact++) {
      if ((bits & (1 << fact)) === 0) continue
      const known = facts[fact]
      if (known !== undefined) span[known] = bytes.readDoubleLE(next)
      next += 8
    }
    return span as unknown as Span
  }

  return (bytes: Buffer, spans?: Span[]) => {
    let at = 0
    while (at < bytes.length) {
      const isName = bytes[at] === NAME
      const next = isName ? readName(bytes, at) : endOf(bytes, at)
      if (next > bytes.length) break
      const span = isName || spans === undefined ? undefined : read(bytes, at)
      if (span !== undefined) spans!.push(span)
      at = next
    }
    return at
  }
}
