import { textWidth } from '@tsrun/core'
import type { Argv } from 'yargs'
import { takesValue, type Flag, type Flags } from '../args/flag.ts'
import { flags as jobFlags } from '../args/flags.ts'
import { homepage, version } from '../package.ts'
import type { Command } from './context.ts'
import { commandNames, commands } from './table.ts'

const ENVIRONMENT =
  'A flag that is not given is taken from the environment: TSRUN_<FLAG>, for example TSRUN_NPROC; ' +
  'then, for the flags that torchrun has too, PET_<FLAG>.'

/** Returns the help page of a command; without one, the page of `tsrun`, which lists all commands. */
export async function helpPage(name: string, command: Command | undefined): Promise<string> {
  const { default: yargs } = await import('yargs')
  const parser = yargs()
    .locale('en')
    .wrap(Math.min(80, textWidth()))
    .scriptName('tsrun')
    .help()
    .alias('help', 'h')
    .describe('help', 'show this page')
    .exitProcess(false)
  // @types/yargs lacks this method.
  const page = parser as unknown as { usageConfiguration(of: object): void }
  page.usageConfiguration({ 'hide-types': true })
  if (command === undefined) {
    parser
      .usage('$0 [flags] script [arguments of the script]')
      .usage('\nStarts N copies (ranks) of a script, joined by a store, as one job.')
      .version(version)
      .describe('version', 'show the version')
      .group(['help', 'version'], 'Help:')
      .example('$0 --nproc 4 train.ts --lr 0.1', 'four ranks; the script gets --lr')
      .epilogue(`${ENVIRONMENT}\n\nDocumentation: ${homepage}`)
    for (const [shown, summary] of Object.entries(commands)) parser.command(shown, summary)
    addFlags(parser, jobFlags)
  } else {
    const { usage, argument, flags } = command
    parser.usage(usage).version(false)
    if (argument !== undefined) {
      const shape = Object.keys(commands)[commandNames.indexOf(name)]!
      const [, place] = /[[<]([\w-]+)/.exec(shape)!
      const { description, choices } = argument
      parser.positional(place!, { type: 'string', describe: description, choices })
    }
    addFlags(parser, flags)
  }
  return await parser.getHelp()
}

function addFlags(parser: Argv, flags: Flags): void {
  let title: string | undefined
  for (const [name, facts] of Object.entries(flags)) {
    const { aliases, description, isNeeded } = facts
    title = facts.section ?? title
    if (title !== undefined) parser.group(name, title)
    parser.option(name, {
      type: takesValue(facts) ? 'string' : 'boolean',
      alias: aliases,
      describe: describe(facts),
      hidden: description === '',
      demandOption: isNeeded,
    })
  }
}

/** The text of a flag on a help page. */
function describe(facts: Omit<Flag, 'name'>): string {
  const { value, description, fallback, isNeeded } = facts
  const more = isNeeded
    ? 'needed'
    : fallback === undefined || fallback === 'false'
      ? ''
      : `default ${fallback}`
  return `${value === undefined ? '' : `${value}: `}${description}${more === '' ? '' : ` (${more})`}`
}
