import type { Flags, ValuesOf } from '../args/flag.ts'
import type { Console } from '../logs/console.ts'
import type { InputSource } from '../job/process/input.ts'
import type { Interrupts } from '../job/process/interrupts.ts'

/** The parts of the process that a command uses. */
export interface CommandContext {
  readonly env: NodeJS.ProcessEnv
  readonly cwd: string
  readonly console: Console
  readonly interrupts: Interrupts
  /** The standard input of the process; without it, ranks get no input. */
  readonly stdin?: InputSource | undefined
  exitCode: number
}

/** A command of tsrun. @typeParam V - the values of its flags */
export interface Command<V = never> {
  /** The text above its flags on the help page. */
  readonly usage: string
  readonly argument?: { readonly description: string; readonly choices?: readonly string[] }
  readonly flags: Flags
  /** @param words - the argument, or for `tsrun hosts` the words after `--` */
  readonly run: (values: V, context: CommandContext, words: readonly string[]) => unknown
}

/** Declares a subcommand. Its flags determine the type of the values that `run` receives. */
export function declareCommand<const F extends Flags>(
  command: Command<ValuesOf<F>> & { readonly flags: F },
): Command {
  return command
}
