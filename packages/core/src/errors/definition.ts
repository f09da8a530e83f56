/**
 * Who has to act: the `user` (wrong call or flag), the `infrastructure` (network, memory, a dead
 * process), or us (`internal`: a bug worth reporting).
 */
export type ErrorCategory = 'user' | 'infrastructure' | 'internal'

export interface ErrorDefinition {
  readonly category: ErrorCategory
  /** What happened and where; `{name}` stands for a fact given at the call. */
  readonly message: string
  /** What to do now. */
  readonly advice: string
  /**
   * True when the error only follows from another rank's failure (a lost peer, an abort): reports
   * never name its rank as the cause while a real cause is known.
   */
  readonly consequence?: boolean
}

export type ErrorSection = Readonly<Record<`ERR_TSR_${string}`, ErrorDefinition>>
