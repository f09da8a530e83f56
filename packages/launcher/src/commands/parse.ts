import yargs, { type Argv } from 'yargs'
import { existsSync } from 'node:fs'
import { flag, textWidth } from '@tsrun/core'
import type { Flag, Flags } from '../args/flag.ts'
import { flags as jobFlags, flagTable } from '../args/flags.ts'
import { hintFor } from '../args/hints.ts'
import { usageError } from '../args/readers.ts'
import { settleRepeated } from '../args/repeated-flags.ts'
import { findFlag, variablesOf } from '../args/settings.ts'
import { homepage, version } from '../package.ts'
import type { Command } from './context.ts'
import { commandNames, commands } from './table.ts'

/** The first argument when a completion script calls tsrun. The words of the command line follow. */
const COMPLETION_REQUEST = '--get-yargs-completions'

/**
 * Parses the command line.
 *
 * @param say - prints a sentence for each flag value that a later value overrides
 * @throws ERR_TSR_USAGE
 */
export async function parse(
  given: readonly string[],
  say: (note: string) => void = () => undefined,
) {
  const argv = withoutDetours(given)
  const isRequest = argv[0] === COMPLETION_REQUEST
  const line = isRequest ? argv.slice(2) : argv
  const [name = ''] = isRequest && line.length === 1 ? [] : line
  const shape = Object.keys(commands)[commandNames.indexOf(name)]
  const command = shape === undefined ? undefined : await load(name)
  const flags: Flags = command?.flags ?? jobFlags
  const [, argument = '--'] = /[[<]([\w-]+)/.exec(shape ?? '') ?? []
  const words = isRequest ? argv : command === undefined ? normalizeFlags(argv) : wordsOf(argv)
  // With ZSH_NAME, yargs adds descriptions to completions.
  if (isRequest) process.env['ZSH_NAME'] = 'zsh'
  const runs: Readonly<Record<string, unknown>>[] = []
  const parser = yargs()
    .locale('en')
    .wrap(Math.min(80, textWidth()))
    .scriptName('tsrun')
    .usage('$0 [flags] script [arguments of the script]')
    .usage('\nStarts N copies (ranks) of a script, joined by a store, as one job.')
    .parserConfiguration({
      // Leave the arguments of a script unparsed, but parse the arguments of a command.
      'halt-at-non-option': command === undefined,
      'populate--': true,
      'parse-numbers': false,
      'parse-positional-numbers': false,
      'camel-case-expansion': false,
      'short-option-groups': false,
    })
    .strict()
    .help()
    .alias('help', 'h')
    .describe('help', 'show this page')
    .version(version)
    .describe('version', 'show the version')
    .exitProcess(false)
    .middleware((values) => {
      const { aliases } = parser.parsed === false ? { aliases: {} } : parser.parsed
      const rest = (values['--'] as readonly string[] | undefined) ?? []
      const own = words.slice(0, words.length - rest.length)
      for (const note of settleRepeated(values, aliases, own)) say(note)
    })
    .fail((message: string | null, error: Error | undefined) => {
      if (message === null) throw error!
      const known = parser.parsed === false ? [] : Object.keys(parser.parsed.aliases)
      throw usageError(explain(message, argv, known))
    })
  // @types/yargs lacks this method.
  const page = parser as unknown as { usageConfiguration(of: object): void }
  page.usageConfiguration({ 'hide-types': true })
  const keep = (values: Readonly<Record<string, unknown>>): void => {
    runs.push(values)
  }
  parser.command('$0', false, (own: Argv) => own, keep)
  for (const [shown, summary] of Object.entries(commands)) {
    parser.command(
      shown,
      summary,
      (own) => (command ? addCommand(own, command, argument) : own),
      keep,
    )
  }
  if (command === undefined) {
    parser
      .group(['help', 'version'], 'Help:')
      .example('$0 --nproc 4 train.ts --lr 0.1', 'four ranks; the script gets --lr')
      .epilogue(`${environmentText()}\n\nDocumentation: ${homepage}`)
    addFlags(parser, flags)
  }
  if (isRequest) {
    const { completion } = await import('./all.ts')
    completion.answerCompletion(parser, line, command !== undefined)
  }
  let printed = ''
  await parser.parseAsync(words, {}, (_error, _argv, output) => {
    printed += output
  })
  const values = runs[0]
  return {
    /** What yargs prints: help, the version, or completions. */
    printed,
    /** Undefined: a job. */
    command,
    /** The texts of the given flags by name; undefined if there is nothing to run. */
    texts: values && textsOf(values, flags),
    /** The arguments of the command, or the script and its arguments, unchanged. */
    words: [values?.[argument] ?? []].flat() as string[],
  }
}

/** Replaces words of other tools that have a counterpart here. */
function withoutDetours(argv: readonly string[]): readonly string[] {
  const [first = '', ...rest] = argv
  const [name, shell] = first.split('=')
  if (name === '--print-completion')
    return ['completion', ...(shell === undefined ? [] : [shell]), ...rest]
  if (existsSync(first)) return argv
  if (first === 'help') return [...rest, '--help']
  return first === 'launch' || first === 'run' ? rest : argv
}

async function load(name: string): Promise<Command> {
  const modules: Readonly<Record<string, { readonly command: Command }>> = await import('./all.ts')
  return modules[name]!.command
}

/** Describes the command of the command line to yargs. @param name - of its argument */
function addCommand(parser: Argv, { usage, argument, flags }: Command, name: string): Argv {
  parser.usage(usage).version(false)
  if (argument !== undefined) {
    const { choices } = argument
    parser.positional(name, { type: 'string', describe: describe(argument), choices })
  }
  return addFlags(parser, flags)
}

function addFlags(parser: Argv, flags: Flags): Argv {
  let title: string | undefined
  for (const [name, facts] of Object.entries(flags)) {
    const { aliases, reads, choices, description, isNeeded, needs, excludes } = facts
    title = facts.section ?? title
    if (title !== undefined) parser.group([name, ...negated(name)], title)
    const isSwitch = reads === flag
    const shape = { type: isSwitch ? 'boolean' : 'string', requiresArg: !isSwitch } as const
    parser.option(name, {
      ...(choices === undefined ? shape : { choices, requiresArg: true }),
      alias: aliases,
      describe: describe(facts),
      hidden: description === '',
      demandOption: isNeeded,
      implies: needs,
      conflicts: excludes?.filter((other) => other !== name),
    })
    for (const other of negated(name)) parser.option(other, { ...shape, hidden: true })
  }
  return parser
}

/** The text of a flag or argument on a help page. */
function describe({ value, choices, description, fallback, isNeeded }: Omit<Flag, 'name'>): string {
  const values = value ?? choices?.join('|')
  const more = isNeeded
    ? 'needed'
    : fallback === undefined || fallback === 'false'
      ? ''
      : `default ${fallback}`
  return `${values === undefined ? '' : `${values}: `}${description}${more === '' ? '' : ` (${more})`}`
}

/** yargs parses `--no-python` as `python` with the value false. */
function negated(name: string): string[] {
  return name.startsWith('no-') ? [name.slice(3)] : []
}

/** The texts of the flags that are given. */
function textsOf(values: Readonly<Record<string, unknown>>, flags: Flags): Record<string, string> {
  const texts: Record<string, string> = {}
  for (const name of Object.keys(flags)) {
    if (negated(name).some((other) => values[other] === false)) texts[name] = 'true'
    const value = values[name]
    if (value === undefined) continue
    texts[name] = typeof value === 'string' ? value : JSON.stringify(value)
  }
  return texts
}

/**
 * Normalizes the flags before the script: underscores become dashes, and `--node-args VALUE` becomes
 * `--node-args=VALUE`, because VALUE begins with a dash. The arguments of the script stay unchanged.
 */
export function normalizeFlags(argv: readonly string[]): string[] {
  const words: string[] = []
  for (let i = 0; i < argv.length; i++) {
    const [name, ...value] = argv[i]!.split('=')
    if (!/^-./.test(name!) || argv[i] === '--') return [...words, ...argv.slice(i)]
    const flag = findFlag(name!)
    const word = [flag === undefined ? name : name!.replaceAll('_', '-'), ...value].join('=')
    const next = argv[i + 1]
    if (next === undefined || value.length > 0 || flag?.value === undefined) words.push(word)
    else {
      words.push(...(flag.name === 'node-args' ? [`${word}=${next}`] : [word, next]))
      i++
    }
  }
  return words
}

function environmentText(): string {
  const shared = flagTable.flatMap((flag) =>
    variablesOf(flag).filter((name) => name.startsWith('PET_')),
  )
  return (
    'A flag that is not given is taken from the environment: TSRUN_<FLAG>, for example ' +
    `TSRUN_NPROC; then, for the flags that torchrun has too, ${shared.join(', ')}.`
  )
}

/** Removes `--` except for `tsrun hosts`, because yargs gives a command no arguments after `--`. */
function wordsOf(argv: readonly string[]): readonly string[] {
  return argv[0] === 'hosts' ? argv : argv.filter((word) => word !== '--')
}

/** Translates error messages of yargs. @param known - the names of the flags */
function explain(message: string, argv: readonly string[], known: readonly string[]): string {
  const [, needsValue] = /^Not enough arguments following: (.*)$/.exec(message) ?? []
  if (needsValue !== undefined) return `--${needsValue} needs a value`
  const [, one, other] = /^Arguments (.*) and (.*) are mutually exclusive$/.exec(message) ?? []
  if (one !== undefined) return `--${one} and --${other!} exclude each other`
  const [, needing, needed] = /^Missing dependent arguments:\s+(\S+) -> (\S+)/.exec(message) ?? []
  if (needing !== undefined) return `--${needing} is only for --${needed!}`
  const [, missing] = /^Missing required arguments?: (.*)$/.exec(message) ?? []
  if (missing !== undefined) return `--${missing.replaceAll(', ', ' and --')} must be given`
  const [command = ''] = argv
  const page = commandNames.includes(command) ? ` of tsrun ${command}` : ''
  if (message.startsWith('Not enough non-option')) {
    return `tsrun ${command} needs an argument`
  }
  const [, given, choices] = /Given: "(.*)", Choices: "(.*)"$/.exec(message) ?? []
  if (given !== undefined)
    return `Unknown argument ${given}${page}; expected ${choices!.replaceAll('", "', ' or ')}`
  const [, unknown] = /^Unknown arguments?: ([^,]*)/.exec(message) ?? []
  if (unknown === undefined) return message
  if (argv.includes(unknown)) return `Unknown argument ${unknown}${page}`
  const words = argv.map((word) => word.split('=', 1)[0])
  const flag = words.find((word) => word === `-${unknown}`) ?? `--${unknown}`
  return `Unknown flag ${flag}${page}${hintFor(unknown, known)}`
}
