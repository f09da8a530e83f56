import { count, declareOptions } from '@tsrun/core'

/**
 * What a rank did: computing (`F` forward, `B` backward, its halves `I` and `W`, `optimizer`), transferring
 * a message (`send`, `recv`, `collective`), or waiting for one (`wait`).
 */
export const spanKinds = [
  'F',
  'B',
  'I',
  'W',
  'optimizer',
  'send',
  'recv',
  'collective',
  'wait',
] as const

export type SpanKind = (typeof spanKinds)[number]

export interface SpanFacts {
  /** The pipeline stage, where there is one. */
  readonly stage?: number | undefined
  /** The micro-batch, where there is one. */
  readonly microbatch?: number | undefined
  /** The size of the message. */
  readonly bytes?: number | undefined
  /** The rank at the other end of the message. */
  readonly peer?: number | undefined
  /** The milliseconds until the peer was ready; the rest of the span is the transfer. */
  readonly waited?: number | undefined
  /** The CPU time of all threads of the process, in milliseconds. */
  readonly cpu?: number | undefined
}

/** One thing that a rank did. Times are milliseconds of `monotonicNow()`, which all processes of a host share. */
export interface Span extends SpanFacts {
  readonly rank: number
  readonly kind: SpanKind
  readonly start: number
  readonly end: number
}

export interface SpanRecorderOptions {
  /** The rank of the spans. */
  readonly rank: number
  /** The number of spans that are kept; default 4096. */
  readonly capacity?: number
}

const readOptions = declareOptions({ rank: count(), capacity: count({ from: 1 }).default(4096) })

/** Stands for a fact that was not given. */
const NONE = -1

const factNames = ['stage', 'microbatch', 'bytes', 'peer', 'waited', 'cpu'] as const
const FACTS = factNames.length

/**
 * Keeps the newest spans of a rank in a ring buffer of fixed size. The buffer consists of typed arrays, so
 * recording allocates nothing.
 *
 * @example
 * const recorder = new SpanRecorder({ rank: 0 })
 * const start = monotonicNow()
 * forward()
 * recorder.record('F', start, monotonicNow(), { stage: 0, microbatch: 3 })
 * recorder.spans() // [{ rank: 0, kind: 'F', stage: 0, microbatch: 3, start, end }]
 */
export class SpanRecorder {
  readonly rank: number
  readonly capacity: number
  readonly #kinds: Uint8Array
  readonly #times: Float64Array
  readonly #facts: Float64Array
  #recorded = 0

  /** @throws ERR_TSR_ARGUMENT when the capacity is not a whole number from 1 */
  constructor(options: SpanRecorderOptions) {
    const { rank, capacity } = readOptions(options)
    this.rank = rank
    this.capacity = capacity
    this.#kinds = new Uint8Array(capacity)
    this.#times = new Float64Array(2 * capacity)
    this.#facts = new Float64Array(FACTS * capacity)
  }

  /** The number of spans recorded so far, including those that have left the buffer. */
  get recorded(): number {
    return this.#recorded
  }

  /** @param start - milliseconds of `monotonicNow()`, like `end` */
  record(kind: SpanKind, start: number, end: number, facts?: SpanFacts): void {
    const slot = this.#recorded % this.capacity
    this.#recorded += 1
    this.#kinds[slot] = spanKinds.indexOf(kind)
    this.#times[2 * slot] = start
    this.#times[2 * slot + 1] = end
    const at = FACTS * slot
    for (let fact = 0; fact < FACTS; fact++) {
      this.#facts[at + fact] = facts?.[factNames[fact]!] ?? NONE
    }
  }

  /** The spans that are still kept, from the `since`-th recorded one on, in the order of recording. */
  spans(since = 0): Span[] {
    const first = Math.max(since, this.#recorded - this.capacity, 0)
    const spans: Span[] = []
    for (let index = first; index < this.#recorded; index++) spans.push(this.#read(index))
    return spans
  }

  /** Removes all spans. */
  clear(): void {
    this.#recorded = 0
  }

  #read(index: number): Span {
    const slot = index % this.capacity
    const facts = factNames
      .map((name, fact) => [name, this.#facts[FACTS * slot + fact]!] as const)
      .filter(([, value]) => value !== NONE)
    return {
      rank: this.rank,
      kind: spanKinds[this.#kinds[slot]!]!,
      start: this.#times[2 * slot]!,
      end: this.#times[2 * slot + 1]!,
      ...Object.fromEntries(facts),
    }
  }
}
