import { closeSync, fstatSync, readdirSync, readSync } from 'node:fs'
import { join } from 'node:path'
import { openFile } from '@tsrun/core'
import { parseSpanFileName, type Span } from '@tsrun/distributed/record'
import type { Window } from '../trace/division.ts'
import { SpanDecoder, SpanFileReader } from '../trace/span-file-reader.ts'
import { stepView } from './step-view.ts'
import type { StepView } from './views.ts'

/** The most bytes that one poll reads, of all files together. */
const LOOK_BYTES = 32 * 2 ** 20
/**
 * If a file has much more that is new, only its end is read: when a page is opened late, and where steps
 * are short, because one step a second is enough. Ranks write at different moments, so that the ends of
 * their files have to be long enough to have steps in common.
 */
const END_BYTES = 2 ** 19
/** The most bytes that are decoded at one time. */
const PART_BYTES = 2 ** 20
/**
 * Steps whose spans are kept: a few, and those of some time, in milliseconds. Each rank writes its spans
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
  /** Names of files that have been opened. */
  readonly #seen = new Set<string>()
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
    let budget = LOOK_BYTES
    for (const file of opened) budget -= file.read(budget)
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
    for (const name of namesIn(this.#folder)) {
      if (this.#seen.has(name)) continue
      const place = parseSpanFileName(name)
      if (place?.restartCount !== this.#attempt || !ranks.includes(place.rank)) continue
      try {
        const tail = new SpanTail(join(this.#folder, name))
        this.#seen.add(name)
        const known = this.#files.get(place.rank)
        // Another process may have taken the place of the rank.
        if (known === undefined || tail.begun > known.begun) this.#files.set(place.rank, tail)
      } catch {
        // Its rank has not written the header yet, or has removed it.
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
  /** When it was made. */
  readonly begun: number
  readonly #path: string
  readonly #decoder: SpanDecoder
  #at: number
  /** From then on, all spans have been read; Infinity: that begins with the next step. */
  #from: number

  /** @throws Error when it is no such file */
  constructor(path: string) {
    const { header, begin } = new SpanFileReader(path)
    this.#path = path
    this.rank = header.rank
    this.begun = this.#from = header.monotonic
    this.#decoder = new SpanDecoder(header)
    this.#at = begin
  }

  /** Reads what has been added, at most so many bytes. @returns how many it has read */
  read(most: number): number {
    let total = 0
    for (let isBehind = true; isBehind && total < most && !this.#decoder.isDamaged;) {
      const { bytes, isPassedOver } = this.#added(most - total)
      const added: Span[] = []
      const used = this.#decoder.decode(bytes, isPassedOver ? undefined : added)
      this.#at += used
      total += used
      isBehind = isPassedOver && used > 0
      if (isPassedOver) {
        this.spans = []
        this.windows.clear()
        this.#from = Infinity
      } else this.#add(added)
    }
    return total
  }

  #add(added: readonly Span[]): void {
    for (const span of added) {
      const { kind, step, start, end } = span
      if (kind !== 'step' || step === undefined) this.spans.push(span)
      // What was before is in a file that is gone, or was passed over.
      else if (start >= this.#from) this.windows.set(step, span)
      else this.#from = Math.min(this.#from, end)
    }
    this.#forget()
  }

  /** Keeps the last steps, and the spans that belong to them. */
  #forget(): void {
    const last = Math.max(...Array.from(this.windows.values(), ({ end }) => end))
    for (const [step, { end }] of [...this.windows].slice(0, -KEPT_STEPS)) {
      if (end < last - KEPT_TIME) this.windows.delete(step)
    }
    const [oldest] = this.windows.values()
    const from = oldest?.start ?? -Infinity
    const spans = this.spans.filter(({ end }) => end >= from)
    this.spans = spans.slice(-KEPT_SPANS)
    if (this.spans.length === spans.length) return
    // Steps with missing spans are not shown.
    const complete = this.spans[0]!.end
    for (const [step, { start }] of this.windows) if (start < complete) this.windows.delete(step)
  }

  /** What is new, or a part of it that is too old to be of use. */
  #added(most: number): { readonly bytes: Buffer; readonly isPassedOver: boolean } {
    let fd: number
    try {
      fd = openFile(this.#path)
    } catch {
      // A newer file has taken its place.
      return { bytes: Buffer.alloc(0), isPassedOver: false }
    }
    try {
      const added = Math.max(0, fstatSync(fd).size - this.#at)
      const isPassedOver = added > 1.5 * END_BYTES
      const length = Math.min(most, isPassedOver ? Math.min(added - END_BYTES, PART_BYTES) : added)
      const bytes = Buffer.allocUnsafe(length)
      return { bytes: bytes.subarray(0, readSync(fd, bytes, 0, length, this.#at)), isPassedOver }
    } finally {
      closeSync(fd)
    }
  }
}
