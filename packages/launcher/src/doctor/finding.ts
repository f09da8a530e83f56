import type { Facts } from './facts.ts'

/** What a check found. */
export interface Finding {
  readonly name: string
  /**
   * `ok`; `note`: the default trains without it, `advice` says how to get more; `problem`: the default
   * does not train until `advice` is followed.
   */
  readonly state: 'ok' | 'note' | 'problem'
  /** What is there, in a few words. */
  readonly found: string
  /** What to do. */
  readonly advice?: string
  /** More lines, as a tool printed them. */
  readonly details?: readonly string[]
}

export type Check = (facts: Facts) => readonly Finding[]
