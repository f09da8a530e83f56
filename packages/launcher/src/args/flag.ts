import type { Schema } from '@tsrun/core'

/** A command-line flag. Help, environment variables, completion and docs are generated from flags. */
export interface Flag {
  readonly name: string
  /** Other names for the same flag. */
  readonly aliases?: readonly string[]
  /** Parses the value of the flag. Without a reader, the value stays text. */
  readonly reads?: Schema<unknown>
  /** The text that turns the flag off. */
  readonly off?: string
  /** The placeholder of the value in help; a flag without one is a switch. */
  readonly value?: string
  readonly description: string
  /** The default value. */
  readonly fallback?: string
  /** The name of torchrun's flag, whose PET_* variable is read as well. */
  readonly torchrun?: string
  /** An environment variable of torchrun, with the lowest precedence. */
  readonly variable?: string
  /** Differences from torchrun's flag, for docs/torch.md; Markdown. */
  readonly differs?: string
  /** The section of help; default: the flags of a job. */
  readonly group?: 'torchrun'
}
