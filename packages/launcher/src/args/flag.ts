import { flag, type Of, type Schema } from '@tsrun/core'

/** A command-line flag. Help, environment variables, completion and docs are generated from flags. */
export interface Flag {
  readonly name: string
  readonly aliases?: readonly string[]
  /** Parses the value of the flag. Without a reader, the value stays text. */
  readonly reads?: Schema<unknown>
  /** The text that turns the flag off. */
  readonly off?: string
  /** The placeholder of the value, for help, completion and docs. */
  readonly value?: string
  /** The description on the help page; an empty text hides the flag. */
  readonly description: string
  readonly fallback?: string
  readonly isNeeded?: true
  /** The name of another flag that this flag requires. */
  readonly needs?: string | undefined
  readonly excludes?: readonly string[]
  /** The name of torchrun's equivalent flag. tsrun also reads the PET_* variable of that flag. */
  readonly torchrun?: string
  /** An environment variable of torchrun, with the lowest precedence. */
  readonly variable?: string
  /** Differences from torchrun's flag, for docs/torch.md; Markdown. */
  readonly differs?: string
  /** The section of the help page that begins with this flag. */
  readonly section?: string
}

/** Flags by name. */
export type Flags = Readonly<Record<string, Omit<Flag, 'name'>>>

/**
 * Whether the flag takes a value. Compares the `expected` texts, not the readers: an optional package may
 * load its own copy of the reader `flag`.
 */
export function takesValue({ reads }: Pick<Flag, 'reads'>): boolean {
  return reads?.expected !== flag.expected
}

/** The names of the flags, each followed by its aliases. */
export function flagNames(flags: Flags): string[] {
  return Object.entries(flags).flatMap(([name, { aliases = [] }]) => [name, ...aliases])
}

/** Finds the flag for a word of the command line, spelled with dashes or underscores. Returns its name. */
export function findFlag<F extends Flags>(flags: F, word: string): (keyof F & string) | undefined {
  const spelled = word.replace(/^--?/, '').replaceAll('_', '-')
  return Object.keys(flags).find((name) => flagNames({ [name]: flags[name]! }).includes(spelled))
}

/** The type of the value of a flag: a string if the flag has no reader. */
type ValueOf<F> =
  | (F extends { reads: infer S } ? Of<S> : string)
  | (F extends { fallback: string } | { isNeeded: true } ? never : undefined)

/** The values of all flags of a table. */
export type ValuesOf<F> = { readonly [Name in keyof F]: ValueOf<F[Name]> }
