import { closeSync, fstatSync, readdirSync, readSync } from 'node:fs'
import { join } from 'node:path'
import { openFile } from '@tsrun/core'
import { parseSpanFileName, type Span } from '@tsrun/distributed/record'
import type { Window } from '../trace/division.ts'
import { SpanDecoder, SpanFileReader } from '../trace/span-file-reader.ts'
import { stepView } from './step-view.ts'
import type { StepView } from './views.ts'

/** Maximum bytes read by one poll, over all files. */
const LOOK_BYTES = 32 * 2 ** 20
/**
 * Bytes to read at the end of a file that has grown by much more. Ranks write at different times, so the
 * ends must be long enough to have steps in common.
 */
const END_BYTES = 2 ** 19
/** Maximum bytes decoded together. */
const PART_BYTES = 2 ** 20
/**
 * Minimum steps whose spans are kept, besides those of the last KEPT_TIME milliseconds. Ranks write every
 * 250 ms at different times, so their last steps may differ.
 */
const KEPT_STEPS = 4
const KEPT_TIME = 2000
/** Maximum spans kept for a rank. */
const KEPT_SPANS = 40_000

/** Follows the traces that the ranks of this host write during an attempt, step by step. */
export class StepTail {
  readonly #folder: string
  readonly #attempt: number
  readonly #files = new Map<number, SpanTail>()
  readonly #seen = new Set<string>()
  #shown: number | undefined

  /** @param folder - the run's folder; see `spansFolder` */
  constructor(folder: string, attempt: number) {
    this.#folder = folder
    this.#attempt = attempt
  }

  /** The last step that all given ranks have completed; undefined if there is no new step. */
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

  /** Opens the newest file of each rank. A rank that keeps only its newest spans starts new files. */
  #open(ranks: readonly number[]): void {
    for (const name of namesIn(this.#folder)) {
      if (this.#seen.has(name)) continue
      const place = parseSpanFileName(name)
      if (place?.restartCount !== this.#attempt || !ranks.includes(place.rank)) continue
      try {
        const tail = new SpanTail(join(this.#folder, name))
        this.#seen.add(name)
        const known = this.#files.get(place.rank)
        // Another process may have replaced the rank.
        if (known === undefined || tail.begun > known.begun) this.#files.set(place.rank, tail)
      } catch {
        // The rank has not written the header yet, or has removed the file.
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

class SpanTail {
  readonly rank: number
  /** The last completed steps, by number. */
  readonly windows = new Map<number, Window>()
  spans: Span[] = []
  /** Creation time of the file on the monotonic clock. */
  readonly begun: number
  readonly #path: string
  readonly #decoder: SpanDecoder
  #at: number
  /**
   * All spans from this time on have been read. Infinity after a skipped part, until the next step
   * ends.
   */
  #from: number

  /** @throws Error if the file is no span file */
  constructor(path: string) {
    const { header, begin } = new SpanFileReader(path)
    this.#path = path
    this.rank = header.rank
    this.begun = this.#from = header.monotonic
    this.#decoder = new SpanDecoder(header)
    this.#at = begin
  }

  /** Reads up to `most` appended bytes. @returns the number of bytes read */
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
      // Earlier spans were skipped, or are in a file that was removed.
      else if (start >= this.#from) this.windows.set(step, span)
      else this.#from = Math.min(this.#from, end)
    }
    this.#forget()
  }

  #forget(): void {
    const ends = Array.from(this.windows.values(), ({ end }) => end)
    const last = ends.reduce((most, end) => Math.max(most, end), -Infinity)
    for (const [step, { end }] of [...this.windows].slice(0, -KEPT_STEPS)) {
      if (end < last - KEPT_TIME) this.windows.delete(step)
    }
    const [oldest] = this.windows.values()
    const from = oldest?.start ?? -Infinity
    const spans = this.spans.filter(({ end }) => end >= from)
    this.spans = spans.slice(-KEPT_SPANS)
    if (this.spans.length === spans.length) return
    // Do not show steps with missing spans.
    const complete = this.spans[0]!.end
    for (const [step, { start }] of this.windows) if (start < complete) this.windows.delete(step)
  }

  /** Returns appended bytes, or marks a part as skipped because it is too old. */
  #added(most: number): { readonly bytes: Buffer; readonly isPassedOver: boolean } {
    let fd: number
    try {
      fd = openFile(this.#path)
    } catch {
      // A newer file has replaced this file.
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
