import type { Span, SpanFileHeader } from '@tsrun/distributed/record'
import { alignClocks, hostOf } from './clocks.ts'
import type { Window } from './division.ts'
import { SpanFileIndex } from './span-file-reader.ts'
import type { TracedRun } from './traced-run.ts'

/** A step of a rank, on the common clock. */
export interface RecordedStep extends Window {
  readonly loss: number | undefined
}

interface RankSteps {
  readonly header: SpanFileHeader
  /** By step number. */
  readonly windows: ReadonlyMap<number, RecordedStep>
  /** Returns the spans that overlap an interval of the common clock, without steps, ordered by start. */
  readonly spansBetween: (start: number, end: number) => Span[]
}

/** Finds the steps and spans of a run's last attempt, without keeping all spans in memory. */
export class RecordedSteps {
  readonly runId: string
  readonly attempts: number
  readonly restartCount: number
  readonly ranks: readonly RankSteps[]
  /** Step numbers common to all ranks that report steps, in order. */
  readonly numbers: readonly number[]
  /** Whether the program reports steps. If not, the whole run counts as one step. */
  readonly hasSteps: boolean
  /** Mean number of spans in a step, over all ranks together. */
  readonly spansPerStep: number

  constructor({ runId, lastAttempt, files }: TracedRun) {
    this.runId = runId
    this.attempts = new Set(files.map(({ header }) => header.restartCount)).size
    this.restartCount = lastAttempt
    const own = files.filter(({ header }) => header.restartCount === lastAttempt)
    const offsets = alignClocks(own)
    const ranks = new Set(own.map(({ header }) => header.rank))
    const read = [...ranks].map((rank) => {
      // A process that replaced a lost rank has written a separate file.
      const ofRank = own
        .filter(({ header }) => header.rank === rank)
        .sort((a, b) => a.header.time - b.header.time)
      const offset = offsets.get(hostOf(ofRank[0]!.header)) ?? 0
      const windows = new Windows(offset)
      const indexes = ofRank.map(
        (file) =>
          new SpanFileIndex(file, (span) => {
            windows.add(span)
          }),
      )
      const spansBetween = (start: number, end: number): Span[] =>
        indexes
          .flatMap((index) => index.between(start - offset, end - offset))
          .filter(({ kind }) => kind !== 'step')
          .map((span) => ({ ...span, start: span.start + offset, end: span.end + offset }))
          .sort((a, b) => a.start - b.start)
      return { header: ofRank.at(-1)!.header, windows, spansBetween }
    })
    this.hasSteps = read.some(({ windows }) => windows.steps.size > 0)
    // If only rank 0 reports steps, use its steps for all ranks.
    const reported = read.find(({ windows }) => windows.steps.size > 0)?.windows.steps
    this.ranks = read.map(({ header, windows, spansBetween }) => {
      const { steps, all } = windows
      return { header, windows: steps.size > 0 ? steps : (reported ?? all), spansBetween }
    })
    this.spansPerStep = read.reduce(
      (sum, { windows }, i) => sum + windows.spans / Math.max(1, this.ranks[i]!.windows.size),
      0,
    )
    const [first, ...others] = this.ranks
    this.numbers = [...(first?.windows.keys() ?? [])]
      .filter((number) => others.every(({ windows }) => windows.has(number)))
      .sort((a, b) => a - b)
  }
}

class Windows {
  spans = 0
  readonly steps = new Map<number, RecordedStep>()
  readonly #offset: number
  #from = Infinity
  #to = -Infinity

  constructor(offset: number) {
    this.#offset = offset
  }

  add({ kind, step, start, end, loss }: Span): void {
    this.spans++
    if (kind === 'F' || kind === 'batch' || kind === 'input') {
      this.#from = Math.min(this.#from, start)
    }
    if (kind !== 'gc') this.#to = Math.max(this.#to, end)
    if (kind !== 'step' || step === undefined) return
    this.steps.set(step, { start: start + this.#offset, end: end + this.#offset, loss })
  }

  get all(): ReadonlyMap<number, RecordedStep> {
    if (this.#from >= this.#to) return new Map()
    const [start, end] = [this.#from + this.#offset, this.#to + this.#offset]
    return new Map([[0, { start, end, loss: undefined }]])
  }
}
