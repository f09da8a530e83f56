import type { Schema } from '@tsrun/core'

/** A flag of the command line. Help, environment, completion and docs are made from this table. */
export interface Flag {
  readonly name: string
  /** Other names for the same flag. */
  readonly aliases?: readonly string[]
  /** What its text may be; default: any text, or what other flags say. */
  readonly reads?: Schema<unknown>
  /** The text that stands for no value. */
  readonly off?: string
  /** What help shows in place of the value; a flag without one is a switch. */
  readonly value?: string
  readonly description: string
  /** The value where neither the command line nor the environment gives one. */
  readonly fallback?: string
  /** The name of torchrun's flag, whose PET_* variable is read as well. */
  readonly torchrun?: string
  /** A variable of torchrun that is read last. */
  readonly variable?: string
  /** What differs from that flag, for docs/torch.md; Markdown. */
  readonly differs?: string
  /** Where help shows it; default: among the flags of a job. */
  readonly group?: 'torchrun'
}
