/**
 * The origin of an error: the `user` (a wrong call or flag), the `infrastructure` (network, memory, a
 * dead process), or tsrun itself (`internal`: a bug to report).
 */
export type ErrorCategory = 'user' | 'infrastructure' | 'internal'

/** The facts of an error by name. */
export type Facts = Readonly<Record<string, string | number>>

/** An entry of the error table. */
export interface ErrorDefinition {
  readonly category: ErrorCategory
  /** What happened, and where. `{name}` is replaced by the fact called `name`. */
  readonly message: string
  /** What the user should do now. */
  readonly advice: string
  /** Returns specific advice for some facts. If it returns undefined, the error shows `advice`. */
  readonly adviseOn?: (facts: Facts) => string | undefined
  /**
   * True if the error only follows from another rank's failure (a lost peer, an abort). A failure
   * report blames such a rank only if no other cause is known.
   */
  readonly consequence?: boolean
}

export type ErrorSection = Readonly<Record<`ERR_TSR_${string}`, ErrorDefinition>>

/** Defines an error of the category `user`. */
export function userError<const Message extends string>(message: Message, advice: string) {
  return { category: 'user', message, advice } as const
}

/** Defines an error of the category `infrastructure`. */
export function infrastructureError<const Message extends string>(
  message: Message,
  advice: string,
) {
  return { category: 'infrastructure', message, advice } as const
}
