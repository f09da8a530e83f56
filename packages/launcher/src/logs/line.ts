export type StreamName = 'stdout' | 'stderr'

/** A piece of output that ends where its writer ended it. */
export interface Line {
  readonly text: string
  /** `\r`: the writer goes back and writes over it; '': cut at the cap, the line goes on. */
  readonly end: '\n' | '\r' | ''
}
