import { closeSync, fstatSync, openSync, readdirSync, readSync } from 'node:fs'
import { join } from 'node:path'
import type { Span } from '../spans.ts'
import type { Window } from '../trace/division.ts'
import { SpanDecoder, SpanFileReader } from '../trace/span-file.ts'
import { parseSpanFileName } from '../trace/trace-folder.ts'
import { stepView } from './step-view.ts'
import type { StepView } from './views.ts'

/** The most bytes of a file that one look reads: a page may be opened long after the job has begun. */
const LOOK_BYTES = 16 * 2 ** 20
/**
 * Steps of which spans are kept: a few, and those of some time, in milliseconds. Each rank writes its spans
 * every 250 ms, at moments of its own, so that the last short steps of two ranks may not be the same.
 */
const KEPT_STEPS = 4
const KEPT_TIME = 2000
/** The most spans of a rank that are kept. */
const KEPT_SPANS = 40_000

/** Follows the traces that the ranks of this host write during an attempt of a job, step by step. */
export class StepTail {
  readonly #folder: string
  readonly #attempt: number
  readonly #files = new Map<number, SpanTail>()
  #shown: number | undefined

  /** @param folder - that of the run; see `spansFolder` */
  constructor(folder: string, attempt: number) {
    this.#folder = folder
    this.#attempt = attempt
  }

  /** The last step that these ranks have ended; undefined if there is no new one. */
  look(ranks: readonly number[]): StepView | undefined {
    this.#open(ranks)
    const files = ranks.toSorted((a, b) => a - b).map((rank) => this.#files.get(rank))
    if (files.length === 0) return undefined
    const opened = files.filter((file) => file !== undefined)
    for (const file of opened) file.read()
    if (opened.length < files.length) return undefined
    const common = [...opened[0]!.windows.keys()].filter((step) =>
      opened.every(({ windows }) => windows.has(step)),
    )
    const step = common.at(-1)
    if (step === undefined || step === this.#shown) return undefined
    this.#shown = step
    return stepView(
      step,
      opened.map(({ rank, windows, spans }) => ({ rank, window: windows.get(step)!, spans })),
    )
  }

  /** The newest file of each rank: one that keeps its newest spans alone begins new ones. */
  #open(ranks: readonly number[]): void {
    const newest = new Map<number, { readonly part: number; readonly path: string }>()
    for (const name of namesIn(this.#folder)) {
      const place = parseSpanFileName(name)
      if (place?.restartCount !== this.#attempt || !ranks.includes(place.rank)) continue
      const { rank, part } = place
      const known = newest.get(rank)
      if (known === undefined || part > known.part) {
        newest.set(rank, { part, path: join(this.#folder, name) })
      }
    }
    for (const [rank, { path }] of newest) {
      if (this.#files.get(rank)?.path === path) continue
      try {
        this.#files.set(rank, new SpanTail(path))
      } catch {
        // Its rank has not written the header yet.
      }
    }
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

/** The newest spans of the file of one rank. */
class SpanTail {
  readonly rank: number
  /** The last steps that have ended, by number. */
  readonly windows = new Map<number, Window>()
  spans: Span[] = []
  readonly path: string
  readonly #begun: number
  readonly #decoder: SpanDecoder
  #at: number

  /** @throws Error when it is no such file */
  constructor(path: string) {
    const { header, begin } = new SpanFileReader(path)
    this.path = path
    this.rank = header.rank
    this.#begun = header.monotonic
    this.#decoder = new SpanDecoder(header)
    this.#at = begin
  }

  /** Reads what has been added. */
  read(): void {
    const added: Span[] = []
    if (this.#decoder.isDamaged) return
    this.#at += this.#decoder.decode(this.#added(), added)
    for (const span of added) {
      const { kind, step, start } = span
      if (kind !== 'step' || step === undefined) this.spans.push(span)
      // What is before the file is in another one, which is gone.
      else if (start >= this.#begun) this.windows.set(step, span)
    }
    const last = Math.max(...Array.from(this.windows.values(), ({ end }) => end))
    for (const [step, { end }] of [...this.windows].slice(0, -KEPT_STEPS)) {
      if (end < last - KEPT_TIME) this.windows.delete(step)
    }
    const [oldest] = this.windows.values()
    const from = oldest?.start ?? -Infinity
    const spans = this.spans.filter(({ end }) => end >= from)
    this.spans = spans.slice(-KEPT_SPANS)
    if (this.spans.length === spans.length) return
    // Steps of which spans are missing are not shown.
    const complete = this.spans[0]!.end
    for (const [step, { start }] of this.windows) if (start < complete) this.windows.delete(step)
  }

  #added(): Buffer {
    let fd: number
    try {
      fd = openSync(this.path, 'r')
    } catch {
      // A newer one has taken its place.
      return Buffer.alloc(0)
    }
    try {
      const added = Math.max(0, fstatSync(fd).size - this.#at)
      const bytes = Buffer.allocUnsafe(Math.min(LOOK_BYTES, added))
      return bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, this.#at))
    } finally {
      closeSync(fd)
    }
  }
}
