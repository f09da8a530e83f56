import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import type { Argv } from 'yargs'
import { flagTable } from '../args/flags.ts'
import type { Flag } from '../args/flag.ts'
import { findFlag } from '../args/settings.ts'
import { packageFolder } from '../package.ts'
import { declareCommand } from './context.ts'

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
 * @param inCommand - whether the first word is a command
 */
export function answerCompletion(
  parser: Argv,
  line: readonly string[],
  inCommand: boolean,
): unknown {
  const current = line.at(-1) ?? ''
  return parser.completion(
    'completion',
    false,
    (
      _current: string,
      _argv: unknown,
      answer: (take: (error: Error | null, words: string[] | undefined) => void) => void,
      done: (words: string[]) => void,
    ) => {
      answer((_error, found = []) => {
        const isFlag = current.startsWith('-')
        const words = !inCommand
          ? wordsOfJob(line, found.map(separate))
          : // yargs reserves the word `completion`, so list its arguments here.
            line[0] === 'completion' && !isFlag
            ? shells
            : wordsOfCommand(found.map(separate), isFlag)
        done(
          words.filter(
            (word) =>
              word.startsWith(':') || (word.startsWith(current) && word.startsWith('-') === isFlag),
          ),
        )
      })
    },
  )
}

/** With ZSH_NAME, yargs writes `word:description`, and escapes colons in the word. */
function separate(answer: string): string {
  const [, word = answer, description = ''] = /^((?:\\:|[^:])*):(.*)$/s.exec(answer) ?? []
  return describeWord(word.replaceAll('\\:', ':'), description)
}

function wordsOfCommand(found: readonly string[], isFlag: boolean): string[] {
  const hasChoices = found.some((word) => !word.startsWith('-'))
  return [...found, ...(isFlag || hasChoices ? [] : [':files'])]
}

function wordsOfJob(line: readonly string[], found: readonly string[]): string[] {
  const before = line.slice(0, -1)
  for (let i = 0; i < before.length; i++) {
    const word = before[i]!
    // The script starts here. Complete the script and its arguments as files.
    if (!/^-./.test(word) || word === '--') return [':files']
    const flag = findFlag(word)
    if (flag?.value === undefined) continue
    if (++i === before.length) return valuesOf(flag, '')
  }
  const [, name] = /^(--?[^=]+)=/.exec(line.at(-1) ?? '') ?? []
  if (name !== undefined) return valuesOf(findFlag(name), `${name}=`)
  const commands = before.length > 0 ? [] : found.filter((word) => !word.startsWith('-'))
  if (line.at(-1)?.startsWith('-') !== true) return [...commands, ':files']
  const flags = flagTable.flatMap((flag) => {
    const names = [flag.name, ...(flag.aliases ?? [])].filter((one) => one.length > 1)
    return names.map((one) => describeWord(`--${one}`, flag.description))
  })
  const others = [
    describeWord('--help', 'show this page'),
    describeWord('--version', 'the version'),
  ]
  return [...flags, ...others]
}

/** Finds the values that a flag accepts: the lower-case words in its placeholder, such as `a|b`. */
function valuesOf(flag: Flag | undefined, prefix: string): string[] {
  const { value = '' } = flag ?? {}
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
