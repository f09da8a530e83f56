/** What the dumps of all ranks say together. Ranks are ranks of the world. */
export type FlightFinding =
  MissingFinding | MismatchFinding | MessageFinding | UnfinishedFinding | SlowFinding

interface AboutOperation {
  readonly group: string
  readonly sequence: number
  /** As `allReduce`. */
  readonly name: string
  readonly operation: string
  readonly label?: string
}

/** A collective that some ranks have entered and others have not. */
export interface MissingFinding extends AboutOperation {
  readonly kind: 'missing'
  readonly missing: readonly RankPlace[]
  /** Ranks that are in it. */
  readonly waiting: readonly number[]
  /** Members that left no dump. */
  readonly unknown: readonly number[]
}

/** What a rank did instead. */
export interface RankPlace {
  readonly rank: number
  /** Its last collective of the group, for people; undefined: none so far. */
  readonly last: string | undefined
  /** What it was in, in another group or as a message; undefined: nothing. */
  readonly running: string | undefined
  /** It called the operation, but only after the group had failed. */
  readonly late: boolean
}

/** Ranks that ran different operations at the same position. */
export interface MismatchFinding {
  readonly kind: 'mismatch'
  readonly group: string
  readonly sequence: number
  /** Each operation, with the ranks that ran it and where they called it. */
  readonly calls: readonly {
    readonly operation: string
    readonly label?: string
    readonly ranks: readonly number[]
    readonly sites: readonly string[]
  }[]
}

/** A message that one end waits for, or that nobody took. */
export interface MessageFinding {
  readonly kind: 'message'
  readonly group: string
  readonly rank: number
  readonly name: string
  readonly operation: string
  readonly label?: string
  /** Undefined: a receive from whoever sends. */
  readonly peer: number | undefined
  readonly tag: number
  /** What the other end did; undefined: it left no dump. */
  readonly place: RankPlace | undefined
}

/** A collective that all ranks have entered and not all have left. */
export interface UnfinishedFinding extends AboutOperation {
  readonly kind: 'unfinished'
  readonly running: readonly number[]
  readonly unknown: readonly number[]
  /** The codes of its errors, if it failed. */
  readonly errors: readonly string[]
  /** Whom each waits for. */
  readonly waitsFor: readonly number[]
}

/** A rank that comes last to the collectives of its group. */
export interface SlowFinding {
  readonly kind: 'slow'
  readonly group: string
  readonly rank: number
  /** Collectives that all ranks of one host have entered. */
  readonly collectives: number
  /** Of these, those to which it came last. */
  readonly last: number
  /** Median of how much later than the first it came to these, in milliseconds. */
  readonly behind: number
}
