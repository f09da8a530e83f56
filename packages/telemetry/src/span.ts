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
