import type { Span } from '../spans.ts'
import { alignClocks, hostOf } from './clocks.ts'
import type { Window } from './division.ts'
import { SpanFileIndex, type SpanFileHeader } from './span-file.ts'
import type { TracedRun } from './trace-folder.ts'

/** A step of a rank, on the common clock. */
export interface RecordedStep extends Window {
  readonly loss: number | undefined
}

/** What a rank has recorded in the last attempt. */
interface RankSteps {
  readonly header: SpanFileHeader
  /** By their numbers. */
  readonly windows: ReadonlyMap<number, RecordedStep>
  /** All spans but steps that overlap an interval of the common clock, in the order of their starts. */
  readonly spansBetween: (start: number, end: number) => Span[]
}

/** Stands for the whole trace of a program that reports no steps. */
const ALL = 0

/** Finds the steps of the last attempt of a run, and their spans, without keeping all spans in memory. */
export class RecordedSteps {
  readonly runId: string
  readonly attempts: number
  readonly restartCount: number
  readonly ranks: readonly RankSteps[]
  /** The steps that all ranks have, in their order. */
  readonly numbers: readonly number[]
  /** Whether the program reports steps; if not, there is one, which is everything. */
  readonly hasSteps: boolean
  /** Of all ranks together. */
  readonly spansPerStep: number

  constructor({ runId, files }: TracedRun) {
    this.runId = runId
    this.attempts = new Set(files.map(({ header }) => header.restartCount)).size
    this.restartCount = Math.max(0, ...files.map(({ header }) => header.restartCount))
    const own = files.filter(({ header }) => header.restartCount === this.restartCount)
    const offsets = alignClocks(own)
    let spans = 0
    this.ranks = own.map((file): RankSteps => {
      const { header } = file
      const offset = offsets.get(hostOf(header)) ?? 0
      const windows = new Windows(offset)
      const index = new SpanFileIndex(file, (span) => {
        windows.add(span)
      })
      const steps = windows.finish()
      spans += windows.spans / Math.max(1, steps.size)
      const spansBetween = (start: number, end: number): Span[] =>
        index
          .between(start - offset, end - offset)
          .filter(({ kind }) => kind !== 'step')
          .map((span) => ({ ...span, start: span.start + offset, end: span.end + offset }))
          .sort((a, b) => a.start - b.start)
      return { header, windows: steps, spansBetween }
    })
    this.spansPerStep = spans
    const [first, ...others] = this.ranks
    this.numbers = [...(first?.windows.keys() ?? [])]
      .filter((number) => others.every(({ windows }) => windows.has(number)))
      .sort((a, b) => a - b)
    this.hasSteps = this.numbers[0] !== ALL
  }
}

/** Collects the steps of one rank. */
class Windows {
  spans = 0
  readonly #offset: number
  readonly #steps = new Map<number, RecordedStep>()
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
    this.#steps.set(step, { start: start + this.#offset, end: end + this.#offset, loss })
  }

  finish(): ReadonlyMap<number, RecordedStep> {
    if (this.#steps.size === 0 && this.#from < this.#to) {
      const [start, end] = [this.#from + this.#offset, this.#to + this.#offset]
      this.#steps.set(ALL, { start, end, loss: undefined })
    }
    return this.#steps
  }
}
