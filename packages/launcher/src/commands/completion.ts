import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { findFlag, flagNames, takesValue, type Flags } from '../args/flag.ts'
import { flags as jobFlags } from '../args/flags.ts'
import { packageFolder } from '../package.ts'
import { declareCommand, type Command } from './context.ts'
import { describe } from './help.ts'
import { commandNames, commands } from './table.ts'

const shells = ['bash', 'zsh', 'fish'] as const

/** `tsrun completion`, which prints a script for a shell. */
export const command = declareCommand({
  usage:
    '$0 completion [shell]\n\nPrints a script that completes tsrun and npx tsrun: commands, flags, values, files.',
  argument: { choices: shells, description: 'default: the one of $SHELL' },
  flags: {},
  run: (_, { env, console }, [shell]) => {
    const named = shells.find((one) => one === basename(env['SHELL'] ?? ''))
    const file = new URL(`completion/tsrun.${shell ?? named ?? 'bash'}`, packageFolder)
    console.write('stdout', readFileSync(file, 'utf8'))
  },
})

/**
 * Answers a completion request with a line for each match: the word, a tab and a description. The words
 * `:files` and `:folders` ask the shell to complete file names.
 *
 * @param line - the words between `tsrun` and the cursor
 * @param of - the command that is the first word, if it is one
 */
export function completionsOf(line: readonly string[], of: Command | undefined): string[] {
  const current = line.at(-1) ?? ''
  return wordsFor(line.slice(of === undefined ? 0 : 1, -1), current, of).filter((word) =>
    [':', current].some((beginning) => word.startsWith(beginning)),
  )
}

function wordsFor(
  before: readonly string[],
  current: string,
  of: Command | undefined,
): readonly string[] {
  const flags: Flags = of?.flags ?? jobFlags
  let positionals = 0
  for (let i = 0; i < before.length; i++) {
    const word = before[i]!
    const isPositional = !/^-./.test(word) || word === '--'
    // The script starts here. Complete the script and its arguments as files.
    if (isPositional && of === undefined) return [':files']
    positionals += Number(isPositional)
    const found = findFlag(flags, word)
    if (found === undefined || !takesValue(flags[found]!)) continue
    if (++i === before.length) return valuesOf(flags, found, '')
  }
  const [, spelled] = /^(--?[^=]+)=/.exec(current) ?? []
  if (spelled !== undefined) return valuesOf(flags, findFlag(flags, spelled), `${spelled}=`)
  if (!current.startsWith('-')) {
    if (of !== undefined)
      return (positionals === 0 ? of.argument?.choices : undefined) ?? [':files']
    const summaries = before.length > 0 ? [] : Object.values(commands)
    const words = summaries.map((summary, i) => describeWord(commandNames[i]!, summary))
    return [...words.filter((word) => !word.startsWith(`${current}\t`)), ':files']
  }
  return [
    ...Object.entries(flags)
      .filter(([, { description }]) => description !== '')
      .flatMap(([name, facts]) =>
        flagNames({ [name]: facts })
          .filter((one) => one.length > 1 || of !== undefined)
          .map((one) =>
            describeWord(
              one.length > 1 ? `--${one}` : `-${one}`,
              of === undefined ? facts.description : describe(facts),
            ),
          ),
      ),
    describeWord('--help', 'show this page'),
    ...(of === undefined ? [describeWord('--version', 'the version')] : []),
  ]
}

/** Finds the values that a flag accepts: its choices, or the lower-case words in its placeholder. */
function valuesOf(flags: Flags, name: string | undefined, prefix: string): string[] {
  const facts = flags[name ?? '']
  if (facts === undefined || !takesValue(facts)) return []
  const value = facts.value ?? facts.choices?.join('|') ?? 'FILE'
  if (value === 'FILE') return [':files']
  if (value === 'DIR') return [':folders']
  const words = value.split('|').filter((word) => /^[a-z0-9][a-z0-9-]*$/.test(word))
  return words.map((word) => prefix + word)
}

const LONGEST = 60

function describeWord(word: string, description: string): string {
  const [clause = ''] = description.split('; ')
  const short = clause.length <= LONGEST ? clause : clause.slice(0, LONGEST).replace(/\s\S*$/, ' …')
  return short === '' ? word : `${word}\t${short}`
}
