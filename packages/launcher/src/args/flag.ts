import type { Schema } from '@tsrun/core'

/** A flag of the command line. Help, environment, completion and docs are generated from these. */
export interface Flag {
  readonly name: string
  /** Other names for the same flag. */
  readonly aliases?: readonly string[]
  /** Reads the text of the flag. Default: any text, or checked together with other flags. */
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
  /** A variable of torchrun that is read last. */
  readonly variable?: string
  /** Differences from torchrun's flag, for docs/torch.md; Markdown. */
  readonly differs?: string
  /** The section of help; default: the flags of a job. */
  readonly group?: 'torchrun'
}
