import yargs, { type Argv, type Options } from 'yargs'
import { tsrError } from '@tsrun/core'
import { flagTable, type Flag, type FlagName } from './flags.ts'
import { nearest } from './nearest.ts'

/** What the first word may be instead of a flag or a script. */
const commands = {
  'ps [RUN-ID]': 'what the ranks of the jobs on this host do',
  'flight FOLDER': 'what the flight records of a failed job say',
  doctor: 'what this host has for training, and what to do',
  'setup WHAT': 'builds what a backend needs: tensorflow',
  completion: 'a completion script for bash or zsh',
}

export type FlagValues = Partial<Record<FlagName, string>>

/** What the command line asks for. */
export type CommandLine =
  | { readonly action: 'help' | 'version' }
  | {
      readonly action: 'run'
      readonly values: FlagValues
      /** The script, then its own arguments, untouched. */
      readonly command: readonly string[]
    }

/**
 * Reads the flags before the script; what follows the script belongs to the script.
 *
 * @throws ERR_TSR_USAGE
 */
export async function readCommandLine(argv: readonly string[]): Promise<CommandLine> {
  const parsed: Record<string, unknown> = await makeParser(argv, 'both').parseAsync()
  if (parsed['help'] === true) return { action: 'help' }
  if (parsed['version'] === true) return { action: 'version' }
  refuseUnknown(Object.keys(parsed), argv)
  const values: FlagValues = {}
  for (const { name } of flagTable) {
    const value = parsed[name]
    if (value !== undefined)
      values[name] = typeof value === 'string' ? value : JSON.stringify(value)
  }
  return { action: 'run', values, command: (parsed['--'] as string[] | undefined) ?? [] }
}

/** The page that `--help` shows. */
export async function helpText(): Promise<string> {
  return await makeParser([], 'dash').getHelp()
}

/** Prints a completion script for the user's shell (bash or zsh). */
export function showCompletionScript(): void {
  makeParser([], 'dash').showCompletionScript()
}

/** Answers the calls that the completion script makes; yargs prints the answer. */
export async function answerCompletion(argv: readonly string[]): Promise<void> {
  await makeParser(argv, 'dash').parseAsync()
}

function makeParser(argv: readonly string[], spelling: 'dash' | 'both'): Argv {
  const parser = yargs([...argv])
    .locale('en')
    .scriptName('tsrun')
    .usage('$0 [flags] script [arguments of the script]')
    .usage('\nStarts N copies (ranks) of a script, joined by a store, as one job.')
    .parserConfiguration({
      'halt-at-non-option': true,
      'populate--': true,
      'parse-numbers': false,
      'parse-positional-numbers': false,
      'camel-case-expansion': false,
      'duplicate-arguments-array': false,
      'short-option-groups': false,
    })
    .help(false)
    .version(false)
    .exitProcess(false)
    .fail((message: string, error: Error | undefined) => {
      if (error !== undefined && message !== error.message) throw error
      throw usageError(
        message.replace(/^Not enough arguments following: (.*)$/, '--$1 needs a value'),
      )
    })
    .option('help', { type: 'boolean', describe: 'show this page' })
    .option('version', { type: 'boolean', describe: 'show the version' })
    .epilogue(
      'Every flag also comes from TSRUN_<FLAG> in the environment, or from torchrun’s PET_<FLAG>.\n\n' +
        `Other commands:\n${commandLines().join('\n')}`,
    )
    .completion('completion', false, complete)
  for (const flag of flagTable) parser.option(flag.name, yargsOption(flag, spelling))
  return parser
}

/** Where nothing fits, the shell completes the name of the script. */
function complete(
  current: string,
  _argv: unknown,
  answerFlags: (take: (error: Error | null, flags: string[] | undefined) => void) => void,
  done: (words: string[]) => void,
): void {
  answerFlags((_error, flags = []) => {
    const names = Object.keys(commands).map((usage) => usage.split(' ', 1)[0]!)
    const words = [...flags, ...names]
    done(words.filter((word) => current !== '' && word.startsWith(current)))
  })
}

function commandLines(): string[] {
  return Object.entries(commands).map(([usage, what]) => `  tsrun ${usage.padEnd(14)} ${what}`)
}

function yargsOption(flag: Flag, spelling: 'dash' | 'both'): Options {
  const names = [flag.name, ...(flag.aliases ?? [])]
  const spellings = spelling === 'dash' ? names : names.flatMap((name) => [name, underscored(name)])
  return {
    alias: [...new Set(spellings)].filter((name) => name !== flag.name),
    type: flag.value === undefined ? 'boolean' : 'string',
    requiresArg: flag.value !== undefined,
    describe: flag.description,
    ...(flag.fallback === undefined ? {} : { defaultDescription: flag.fallback }),
  }
}

function refuseUnknown(keys: readonly string[], argv: readonly string[]): void {
  const names = [
    ...flagTable.flatMap((flag: Flag) => [flag.name, ...(flag.aliases ?? [])]),
    'help',
    'version',
  ]
  const known = new Set(['_', '--', '$0', ...names, ...names.map(underscored)])
  const unknown = keys.find((key) => !known.has(key))
  if (unknown === undefined) return
  const flag =
    argv.map((word) => word.split('=', 1)[0]!).find((word) => word === `-${unknown}`) ??
    `--${unknown}`
  const guess = nearest(unknown.replaceAll('_', '-').toLowerCase(), names)
  throw usageError(
    guess === undefined
      ? `Unknown flag ${flag}`
      : `Unknown flag ${flag} (the nearest is --${guess})`,
  )
}

function underscored(name: string): string {
  return name.replaceAll('-', '_')
}

function usageError(problem: string): Error {
  return tsrError('ERR_TSR_USAGE', { problem })
}
