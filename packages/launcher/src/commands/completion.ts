import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { flag } from '@tsrun/core'
import { findFlag, takesValue, type Flags } from '../args/flag.ts'
import { flags as jobFlags } from '../args/flags.ts'
import { packageFolder } from '../package.ts'
import { declareCommand, type Command } from './context.ts'
import { commandNames, commands } from './table.ts'

const shells = ['bash', 'zsh', 'fish'] as const

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
 * @param of - the command that the first word names, if any
 */
export function completionsOf(line: readonly string[], of: Command | undefined): string[] {
  const before = line.slice(of === undefined ? 0 : 1, -1)
  const current = line.at(-1) ?? ''
  return wordsFor(before, current, of).filter((word) =>
    [':', current].some((beginning) => word.startsWith(beginning)),
  )
}

function wordsFor(
  before: readonly string[],
  current: string,
  of: Command | undefined,
): readonly string[] {
  const flags: Flags = of?.flags ?? {
    ...jobFlags,
    version: { reads: flag, description: 'the version' },
  }
  const valuesAfter = (word = '', prefix = ''): string[] | undefined => {
    const name = word.startsWith('-') ? findFlag(flags, word) : undefined
    if (name === undefined || !takesValue(flags[name]!)) return undefined
    return valuesOf(flags[name]!, prefix)
  }
  const values = valuesAfter(before.at(-1))
  if (values !== undefined) return values
  /** Whether the script or the argument of the command is given. */
  const isGiven = before.some(
    (word, i) => !/^-./.test(word) && valuesAfter(before[i - 1]) === undefined,
  )
  if (isGiven && of === undefined) return [':files']
  const [start, spelled] = /^(--?[^=]+)=/.exec(current) ?? []
  if (start !== undefined) return valuesAfter(spelled, start) ?? []
  if (current.startsWith('-')) return wordsOfFlags(flags)
  if (isGiven) return [':files']
  if (of !== undefined) return of.argument?.choices ?? [':files']
  if (before.length > 0) return [':files']
  const words = Object.values(commands).map((summary, i) => `${commandNames[i]!}\t${summary}`)
  return [...words.filter((word) => !word.startsWith(`${current}\t`)), ':files']
}

function wordsOfFlags(flags: Flags): string[] {
  const all: Flags = { ...flags, help: { description: 'show this page' } }
  return Object.entries(all).flatMap(([name, { aliases = [], description }]) => {
    const shown = description === '' ? [] : [name, ...aliases]
    const [clause = ''] = description.split('; ')
    return shown.map((word) => `${word.length > 1 ? '--' : '-'}${word}\t${clause}`)
  })
}

/** Finds the values that a flag accepts: the lower-case words in its placeholder. */
function valuesOf({ value = 'FILE' }: Flags[string], prefix: string): string[] {
  if (value === 'FILE') return [':files']
  if (value === 'DIR') return [':folders']
  const words = value.split('|').filter((word) => /^[a-z0-9][a-z0-9-]*$/.test(word))
  return words.map((word) => prefix + word)
}
