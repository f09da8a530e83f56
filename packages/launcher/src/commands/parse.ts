import { existsSync } from 'node:fs'
import { flag } from '@tsrun/core'
import { findFlag, flagNames, takesValue, type Flags } from '../args/flag.ts'
import { flags as jobFlags } from '../args/flags.ts'
import { hintFor } from '../args/hints.ts'
import { usageError } from '../args/readers.ts'
import { loadPackage } from '../optional-package.ts'
import { version } from '../package.ts'
import type { Command } from './context.ts'
import { commandNames, commands } from './table.ts'

/** The first argument when a completion script calls tsrun. The words of the command line follow. */
const COMPLETION_REQUEST = '--get-yargs-completions'

/** @param cwd - the project folder, where optional packages with commands are looked up, too */
export async function parse(given: readonly string[], cwd = process.cwd()) {
  const argv = withoutDetours(given)
  const isRequest = argv[0] === COMPLETION_REQUEST
  const line = isRequest ? argv.slice(2) : argv
  const [name = ''] = isRequest && line.length === 1 ? [] : line
  const command = commandNames.includes(name) ? await load(name, cwd) : undefined
  const print = (printed: string) => ({ printed, command, texts: undefined, words: [] })
  if (isRequest) {
    const { completionsOf } = await import('./all.ts')
    return print(completionsOf(line, command).join('\n'))
  }
  const read = command === undefined ? readWords(line) : readWords(line.slice(1), name, command)
  if (read.texts['help'] === 'true') {
    const { helpPage } = await import('./all.ts')
    return print(await helpPage(name, command))
  }
  if (read.texts['version'] === 'true') return print(version)
  const problem = read.problem ?? problemOf(read, name, command)
  if (problem !== undefined) throw usageError(problem)
  return {
    /** The text to print instead of running anything: help, the version, or completions. */
    printed: '',
    /** Undefined if the command line starts a job. */
    command,
    /** The texts of the given flags by name; undefined if there is nothing to run. */
    texts: read.texts,
    /** The arguments of the command, or the script and its arguments, unchanged. */
    words: read.words,
  }
}

/** Replaces the commands of other tools by the equivalents of tsrun. */
function withoutDetours(argv: readonly string[]): readonly string[] {
  const [first = '', ...rest] = argv
  const [name, shell] = first.split('=')
  if (name === '--print-completion')
    return ['completion', ...(shell === undefined ? [] : [shell]), ...rest]
  if (existsSync(first)) return argv
  if (first === 'help') return [...rest, '--help']
  return first === 'launch' || first === 'run' ? rest : argv
}

/** Loads a command of tsrun, or a command of the optional package @tsrun/doctor. */
async function load(name: string, cwd: string): Promise<Command> {
  const own: Exported = await import('./all.ts')
  const command =
    own[name] ?? ((await loadPackage('@tsrun/doctor', `tsrun ${name}`, cwd)) as Exported)[name]
  return command as Command
}

type Exported = Readonly<Record<string, unknown>>

/** Flags that are lists, with the separators that join the values of repeated flags. */
const separators: Readonly<Record<string, string>> = {
  ranks: ',',
  rank: ',',
  'local-ranks-filter': ',',
  'duplicate-stdout-filters': ',',
  'duplicate-stderr-filters': ',',
  'signals-to-handle': ',',
  'rdzv-conf': ',',
  'node-args': ' ',
  env: ',',
  include: ',',
  exclude: ',',
}

type Read = ReturnType<typeof readWords>

/** Reads the words of a command, or the words of a job up to the script. */
function readWords(line: readonly string[], name?: string, command?: Command) {
  const flags: Flags = {
    ...(command?.flags ?? { ...jobFlags, version: { reads: flag, description: '' } }),
    help: { aliases: ['h'], reads: flag, description: '' },
  }
  const texts: Record<string, string> = {}
  const positionals: string[] = []
  let rest: readonly string[] | undefined
  let problem: string | undefined
  let unknown: string | undefined
  for (let i = 0; i < line.length && rest === undefined; i++) {
    const word = line[i]!
    if (word === '--') {
      if (command === undefined || name === 'hosts') rest = line.slice(i + 1)
      continue
    }
    if (!/^-./.test(word)) {
      if (command === undefined) rest = line.slice(i)
      else positionals.push(word)
      continue
    }
    const [, spelled = '', value] = /^([^=]+)(?:=(.*))?$/s.exec(word) ?? []
    const plain = findFlag(flags, spelled)
    const isNegated = plain === undefined && value === undefined && spelled.startsWith('--no-')
    const found = isNegated ? findFlag(flags, spelled.slice('--no-'.length)) : plain
    const next = line[i + 1]
    let text = isNegated ? 'false' : value
    if (found === undefined) {
      unknown ??= spelled
      continue
    }
    if (text === undefined && takesValue(flags[found]!)) {
      text = next
      // Arguments of Node begin with a dash.
      if (next === undefined || (/^-\D/.test(next) && found !== 'node-args')) {
        problem ??= `${spelled} needs a value`
        continue
      }
      i++
    }
    const separator = separators[found]
    const before = texts[found]
    const isList = separator !== undefined && before !== undefined
    texts[found] = (isList ? before + separator : '') + (text ?? 'true')
  }
  return { flags, texts, positionals, words: [...(rest ?? positionals)], problem, unknown }
}

/** Finds the first mistake of a command line. Missing values of flags have already been found. */
function problemOf(
  { flags, texts, positionals, unknown }: Read,
  name: string,
  command: Command | undefined,
): string | undefined {
  const page = command === undefined ? '' : ` of tsrun ${name}`
  const shape = Object.keys(commands)[commandNames.indexOf(name)] ?? ''
  if (positionals.length === 0 && shape.includes('<')) return `tsrun ${name} needs an argument`
  const missing = Object.keys(flags).filter((each) => flags[each]!.isNeeded && !(each in texts))
  if (missing.length > 0) return `--${missing.join(' and --')} must be given`
  if (unknown !== undefined) {
    const hint = hintFor(unknown.replace(/^--?/, ''), flagNames(flags))
    return `Unknown flag ${unknown}${page}${hint}`
  }
  const most = shape.includes('..') ? Infinity : Number(command?.argument !== undefined)
  if (positionals.length > most) return `Unknown argument ${positionals[most]!}${page}`
  const choices = command?.argument?.choices
  const [chosen] = positionals
  if (choices !== undefined && chosen !== undefined && !choices.includes(chosen)) {
    return `Unknown argument ${chosen}${page}; expected ${choices.join(' or ')}`
  }
  for (const each of Object.keys(texts)) {
    const { needs, excludes = [] } = flags[each]!
    if (needs !== undefined && !(needs in texts)) return `--${each} is only for --${needs}`
    const other = excludes.find((one) => one !== each && one in texts)
    if (other !== undefined) return `--${each} and --${other} exclude each other`
  }
  return undefined
}
