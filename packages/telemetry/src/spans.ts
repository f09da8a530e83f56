import { tsrError } from '@tsrun/core'

/**
 * What a rank did: compute (`F` forward, `B` backward, its halves `I` and `W`, `optimizer`),
 * messages under way (`send`, `recv`, `collective`), or standing still until one arrives (`wait`).
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
  /** Pipeline stage, where there is one. */
  readonly stage?: number | undefined
  /** Micro-batch, where there is one. */
  readonly microbatch?: number | undefined
  /** Size of the message. */
  readonly bytes?: number | undefined
  /** Rank at the other end of the message. */
  readonly peer?: number | undefined
  /** Milliseconds of the span until the peer was there: the rest is transfer. */
  readonly waited?: number | undefined
  /** Milliseconds of CPU time that the process used, all its threads together. */
  readonly cpu?: number | undefined
}

/** One thing that a rank did; times in milliseconds of `monotonicNow()`, which all processes of a host share. */
export interface Span extends SpanFacts {
  readonly rank: number
  readonly kind: SpanKind
  readonly start: number
  readonly end: number
}

export interface SpanRecorderOptions {
  /** Rank that the spans belong to. */
  readonly rank: number
  /** Spans that are kept, the newest ones; default 4096. */
  readonly capacity?: number
}

const NONE = -1

const factNames = ['stage', 'microbatch', 'bytes', 'peer', 'waited', 'cpu'] as const
const FACTS = factNames.length

/**
 * Keeps the newest spans of a rank in a ring of fixed size, in typed arrays: recording one
 * allocates nothing.
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

  /** @throws ERR_TSR_ARGUMENT when the capacity is no whole number from 1 */
  constructor({ rank, capacity = 4096 }: SpanRecorderOptions) {
    if (!Number.isSafeInteger(capacity) || capacity < 1) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: 'capacity',
        value: capacity,
        expected: 'a whole number from 1',
      })
    }
    this.rank = rank
    this.capacity = capacity
    this.#kinds = new Uint8Array(capacity)
    this.#times = new Float64Array(2 * capacity)
    this.#facts = new Float64Array(FACTS * capacity)
  }

  /** Number of spans recorded so far, those that have left the ring included. */
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

  /** The spans from the `since`-th recorded one on that are still kept, in the order of recording. */
  spans(since = 0): Span[] {
    const first = Math.max(since, this.#recorded - this.capacity, 0)
    const spans: Span[] = []
    for (let index = first; index < this.#recorded; index++) spans.push(this.#read(index))
    return spans
  }

  /** Forgets all spans. */
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
