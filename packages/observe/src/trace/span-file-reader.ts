import { closeSync, fstatSync, readSync } from 'node:fs'
import { openFile, parseJson } from '@tsrun/core'
import {
  factNames,
  spanKinds,
  NAME,
  NAME_HEAD,
  SPAN_HEAD,
  spanFileHeader,
  type Span,
  type SpanKind,
  type SpanFileHeader,
} from '@tsrun/distributed/record'
import { noticedEnd } from './division.ts'

const LONGEST_HEADER = 16 * 1024
const CHUNK = 256 * 1024

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
      const bytes = Buffer.alloc(Math.min(LONGEST_HEADER, fstatSync(fd).size))
      const head = bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, 0))
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
   * @param decoder - must have read the names of the file, unless `from` is the beginning of the file
   * @param from - start of a record
   * @param to - end of a record
   */
  *parts(
    decoder = new SpanDecoder(this.header),
    from = this.begin,
    to = Infinity,
  ): Generator<SpanFilePart, void, undefined> {
    const fd = openFile(this.#path)
    try {
      let rest = Buffer.alloc(0)
      for (let at = from; at < to;) {
        const most = Math.min(CHUNK, to - at)
        const bytes = Buffer.allocUnsafe(rest.length + most)
        rest.copy(bytes)
        const read = readSync(fd, bytes, rest.length, most, at)
        if (read === 0) return
        const begin = at - rest.length
        at += read
        const filled = bytes.subarray(0, rest.length + read)
        const spans: Span[] = []
        const used = decoder.decode(filled, spans)
        yield { spans, from: begin, to: begin + used }
        if (decoder.isDamaged) return
        rest = filled.subarray(used)
      }
    } finally {
      closeSync(fd)
    }
  }
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
  const decoder = new SpanDecoder(file.header)
  const parts = Array.from(file.parts(decoder), ({ from, to, spans }) => {
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
      for (const { spans } of file.parts(decoder, part.from, part.to)) {
        for (const span of spans)
          if (span.start <= end && noticedEnd(span) >= start) found.push(span)
      }
    }
    return found
  }
}

/** Decodes the records of one file. */
export class SpanDecoder {
  readonly #rank: number
  readonly #kinds: readonly (SpanKind | undefined)[]
  /** The facts of the file in order; undefined for facts that this version does not know. */
  readonly #facts: readonly ((typeof factNames)[number] | undefined)[]
  readonly #names: (string | undefined)[] = []
  #isDamaged = false

  constructor({ rank, kinds, facts }: Pick<SpanFileHeader, 'rank' | 'kinds' | 'facts'>) {
    this.#rank = rank
    // A newer tsrun may write kinds that this version does not know.
    this.#kinds = kinds.map((kind) => spanKinds.find((known) => known === kind))
    this.#facts = facts.map((fact) => factNames.find((known) => known === fact))
  }

  /** Whether the last decoded bytes contained a damaged record. Nothing after it can be read. */
  get isDamaged(): boolean {
    return this.#isDamaged
  }

  /**
   * @param spans - receives the spans of complete records; undefined skips them, which is much faster
   * @returns the number of bytes in complete records
   */
  decode(bytes: Buffer, spans: Span[] | undefined): number {
    this.#isDamaged = false
    let at = 0
    while (at < bytes.length) {
      const next = bytes[at] === NAME ? this.#readName(bytes, at) : this.#endOf(bytes, at)
      this.#isDamaged = next === undefined
      if (next === undefined || next > bytes.length) break
      if (spans !== undefined && bytes[at] !== NAME) {
        const span = this.#read(bytes, at)
        if (span !== undefined) spans.push(span)
      }
      at = next
    }
    return at
  }

  #readName(bytes: Buffer, at: number): number {
    if (at + NAME_HEAD > bytes.length) return Infinity
    const next = at + NAME_HEAD + bytes.readUInt16LE(at + 3)
    if (next <= bytes.length) {
      this.#names[bytes.readUInt16LE(at + 1)] = bytes.toString('utf8', at + NAME_HEAD, next)
    }
    return next
  }

  /** @returns undefined if the record is damaged, Infinity if it is incomplete */
  #endOf(bytes: Buffer, at: number): number | undefined {
    if (bytes[at]! >= this.#kinds.length) return undefined
    if (at + SPAN_HEAD > bytes.length) return Infinity
    const bits = bytes.readUInt16LE(at + 1)
    if (bits >= 1 << this.#facts.length) return undefined
    let present = 0
    for (let rest = bits; rest > 0; rest &= rest - 1) present++
    return at + SPAN_HEAD + 8 * present
  }

  #read(bytes: Buffer, at: number): Span | undefined {
    const kind = this.#kinds[bytes[at]!]
    const start = bytes.readDoubleLE(at + 5)
    const end = bytes.readDoubleLE(at + 13)
    if (kind === undefined || !(end >= start) || !Number.isFinite(end - start)) return undefined
    const name = this.#names[bytes.readUInt16LE(at + 3)]
    const span: Record<string, unknown> = { rank: this.#rank, kind, start, end }
    if (name !== undefined) span['name'] = name
    const bits = bytes.readUInt16LE(at + 1)
    let next = at + SPAN_HEAD
    for (let fact = 0; fact < this.#facts.length; fact++) {
      if ((bits & (1 << fact)) === 0) continue
      const known = this.#facts[fact]
      if (known !== undefined) span[known] = bytes.readDoubleLE(next)
      next += 8
    }
    return span as unknown as Span
  }
}
