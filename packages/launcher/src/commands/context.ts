import type { Argv } from 'yargs'
import type { Console } from '../logs/console.ts'
import type { InputSource } from '../processes/input.ts'
import type { Interrupts } from '../processes/interrupts.ts'

/** What a command gets from the process that runs it. */
export interface CommandContext {
  readonly env: NodeJS.ProcessEnv
  readonly cwd: string
  readonly console: Console
  readonly interrupts: Interrupts
  /** The standard input of the process; without it the ranks read nothing. */
  readonly stdin?: InputSource
  /** The exit code of the process; commands set it. */
  exitCode: number
}

/** Adds a command to the parser. */
export type AddCommand = (parser: Argv) => unknown

/** The commands beside the start of a job. */
export const commandNames: readonly string[] = [
  'init',
  'hosts',
  'ps',
  'top',
  'stacks',
  'logs',
  'flight',
  'trace',
  'view',
  'doctor',
  'env',
  'setup',
  'schedule',
  'plan',
  'completion',
]
