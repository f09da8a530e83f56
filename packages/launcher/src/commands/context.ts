import type { Argv } from 'yargs'
import type { Console } from '../logs/console.ts'
import type { InputSource } from '../job/process/input.ts'
import type { Interrupts } from '../job/process/interrupts.ts'

/** The environment of a command. */
export interface CommandContext {
  readonly env: NodeJS.ProcessEnv
  readonly cwd: string
  readonly console: Console
  readonly interrupts: Interrupts
  /** The standard input of the process; undefined: ranks get no input. */
  readonly stdin?: InputSource
  exitCode: number
}

/** Adds a command to the parser. */
export type AddCommand = (parser: Argv) => unknown

/** The names of all commands except the default one, which starts a job. */
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
