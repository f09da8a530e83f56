import { Writable } from 'node:stream'
import { isatty } from 'node:tty'
import yargs from 'yargs'
import { isTsrError, nearestName, textWidth, writeWhole } from '@tsrun/core'
import { statusOf } from '@tsrun/native'
import { usageError } from '../args/readers.ts'
import { settleRepeated } from '../args/repeated-flags.ts'
import { version } from '../package.ts'
import { Console } from '../logs/console.ts'
import { watchParentPipe, PARENT_PIPE } from '../remote/parent-pipe.ts'
import {
  aborted,
  listenForInterrupts,
  OUTPUT_LOST,
  outputClosed,
} from '../job/process/interrupts.ts'
import { addCompletion, answerCompletion, COMPLETION_REQUEST } from './completion.ts'
import { commandNames, type AddCommand, type CommandContext } from './context.ts'
import { addDoctor } from './doctor.ts'
import { addEnv } from './env.ts'
import { addFlight } from './flight.ts'
import { addHosts } from './hosts.ts'
import { addInit } from './init.ts'
import { addLogs } from './logs.ts'
import { addPlan } from './plan.ts'
import { addPs } from './ps.ts'
import { addFlags, addRun, normalizeFlags, startJob } from './run.ts'
import { addSchedule } from './schedule.ts'
import { addSetup, setUp } from './setup.ts'
import { addTop } from './top.ts'
import { addTrace } from './trace.ts'
import { addView } from './view.ts'
import { addStacks } from './stacks.ts'

/** Exit code for wrong usage, and for a job that cannot start, for example without a script. */
const USAGE = 2

/**
 * Runs the `tsrun` command, which handles the signals and writes the output of this process.
 *
 * @param argv - the command line without Node and the script
 * @returns the exit code: 0, the code of the rank that failed first, 128 + n for signal n, 2 for wrong
 *   usage
 */
export async function runCommand(argv: readonly string[]): Promise<number> {
  const interrupts = listenForInterrupts()
  const { stdout, stderr, env } = process
  // If stdin is the parent pipe, ranks must not read from it.
  const isHeld = env[PARENT_PIPE] !== undefined
  if (isHeld) watchParentPipe(process.stdin, env, interrupts)
  const input = { isTerminal: isatty(0), open: () => process.stdin }
  const outputs = { stdout: toFile(1) ?? stdout, stderr: toFile(2) ?? stderr }
  const console = new Console(outputs, (error) => {
    interrupts.interrupt(outputClosed(error))
  })
  return await runCommandLine(argv, {
    env,
    cwd: process.cwd(),
    console,
    interrupts,
    ...(isHeld ? {} : { stdin: input }),
  })
}

/** A stream that writes all bytes to a file. Node's stream loses data on a nearly full disk. */
function toFile(fd: number): Writable | undefined {
  if (!statusOf(fd).isFile()) return undefined
  return new Writable({
    write: (bytes: Buffer, _, done) => {
      try {
        writeWhole(fd, bytes)
        done()
      } catch (error) {
        done(error as Error)
      }
    },
  })
}

/** Runs a command line in the given context. */
export async function runCommandLine(
  argv: readonly string[],
  given: Omit<CommandContext, 'exitCode'>,
): Promise<number> {
  const context: CommandContext = { ...given, exitCode: 0 }
  const { console, interrupts } = context
  const commands = [
    addRun((values, command) => startJob(values, command, context)),
    addInit(context),
    addHosts(context),
    addPs(context),
    addTop(context),
    addStacks(context),
    addLogs(context),
    addFlight(context),
    addTrace(context),
    addView(context),
    addDoctor(context),
    addEnv(context),
    addSetup(context.cwd, (request, isCheck, sha256) => setUp(request, isCheck, sha256, context)),
    addSchedule(context),
    addPlan(context),
    addCompletion(context),
  ]
  const exitCode = await runParsed(argv, commands, context).finally(async () => {
    await Promise.race([console.flush(), aborted(interrupts.kill)])
  })
  return exitCode === 0 && console.isIncomplete ? OUTPUT_LOST : exitCode
}

async function runParsed(
  argv: readonly string[],
  commands: readonly AddCommand[],
  context: CommandContext,
): Promise<number> {
  const { console } = context
  try {
    const output = await parse(argv, commands, (note) => {
      console.print('stderr', `tsrun: ${note}\n`)
    })
    if (output !== '') console.write('stdout', `${output}\n`)
    return context.exitCode
  } catch (error) {
    if (!isTsrError(error)) throw error
    console.write('stderr', `tsrun: ${error.message}\n`)
    return USAGE
  }
}

/**
 * Parses the command line and runs its command.
 *
 * @param say - prints a sentence for each flag value that a later value overrides
 * @returns the text that yargs prints: help, the version, or completions
 * @throws ERR_TSR_USAGE, and the errors of the command
 */
export async function parse(
  argv: readonly string[],
  commands: readonly AddCommand[],
  say: (note: string) => void = () => undefined,
): Promise<string> {
  const isRequest = argv[0] === COMPLETION_REQUEST
  const line = isRequest ? argv.slice(2) : argv
  const inCommand = commandNames.includes(line[0] ?? '') && !(isRequest && line.length === 1)
  const words = isRequest ? argv : inCommand ? wordsOfCommand(argv) : normalizeFlags(argv)
  // With ZSH_NAME, yargs adds descriptions to completions.
  if (isRequest) process.env['ZSH_NAME'] = 'zsh'
  const parser = yargs()
    .locale('en')
    .wrap(Math.min(80, textWidth()))
    .scriptName('tsrun')
    .usage('$0 [flags] script [arguments of the script]')
    .usage('\nStarts N copies (ranks) of a script, joined by a store, as one job.')
    .parserConfiguration({
      // Leave the arguments of a script unparsed, but parse the arguments of a command.
      'halt-at-non-option': !inCommand,
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
      // Rethrow errors of commands. An error of yargs itself has the text of `message`.
      if (message === null || (error !== undefined && message !== error.message)) throw error!
      const known = parser.parsed === false ? [] : Object.keys(parser.parsed.aliases)
      throw usageError(explain(message, argv, known))
    })
  for (const add of commands) add(parser)
  if (!inCommand) addFlags(parser)
  if (isRequest) answerCompletion(parser, line)
  let printed = ''
  await parser.parseAsync(words, {}, (_error, _argv, output) => {
    printed += output
  })
  return printed
}

/** Removes `--` except for `tsrun hosts`, because yargs gives a command no arguments after `--`. */
function wordsOfCommand(argv: readonly string[]): readonly string[] {
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
  const [command = ''] = argv
  const page = commandNames.includes(command) ? ` of tsrun ${command}` : ''
  if (message.startsWith('Not enough non-option')) {
    return `tsrun ${command} needs an argument: see tsrun ${command} --help`
  }
  const [, given, choices] = /Given: "(.*)", Choices: "(.*)"$/.exec(message) ?? []
  if (given !== undefined) return `Unknown argument ${given}${page}; expected ${choices!}`
  const [, unknown] = /^Unknown arguments?: ([^,]*)/.exec(message) ?? []
  if (unknown === undefined) return message
  if (argv.includes(unknown)) return `Unknown argument ${unknown}${page}`
  const words = argv.map((word) => word.split('=', 1)[0])
  const flag = words.find((word) => word === `-${unknown}`) ?? `--${unknown}`
  const names = known.filter((name) => name.length > 1)
  const name = nearestName(unknown.replaceAll('_', '-'), names)
  const hint = name === undefined ? '' : ` (the nearest is --${name})`
  return `Unknown flag ${flag}${page}${hint}`
}
