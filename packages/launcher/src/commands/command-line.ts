import { Writable } from 'node:stream'
import { isatty } from 'node:tty'
import { isObject, isTsrError, writeWhole } from '@tsrun/core'
import { statusOf } from '@tsrun/native'
import type { Flags } from '../args/flag.ts'
import { readSetting, reasonOf, usageError } from '../args/readers.ts'
import { openConsole } from '../logs/console.ts'
import { exitCodeOfError, USAGE } from '../job/failure/exit-codes.ts'
import { PARENT_PIPE, SSH_FAILED, watchParentPipe } from '../remote/hosts.ts'
import {
  aborted,
  listenForInterrupts,
  OUTPUT_LOST,
  outputClosed,
} from '../job/process/interrupts.ts'
import type { Interruption } from '../protocol/nodes.ts'
import type { CommandContext } from './context.ts'
import { parse } from './parse.ts'
import { commandNames } from './table.ts'

/** The advice of usage errors. */
const HELP = 'See tsrun --help.'

/**
 * Runs the `tsrun` command, which handles the signals and writes the output of this process.
 *
 * @param argv - the command line without Node and the script
 * @returns the exit code; docs/launcher.md has a table
 */
export async function runCommand(argv: readonly string[]): Promise<number> {
  const { stdout, stderr, env } = process
  // If `tsrun hosts` sends signals through stdin, ranks must not read from stdin.
  const isHeld = env[PARENT_PIPE] !== undefined
  const interrupts = listenForInterrupts(isHeld)
  if (isHeld) watchParentPipe(process.stdin, env, interrupts)
  const input = { isTerminal: isatty(0), open: () => process.stdin }
  const outputs = { stdout: toFile(1) ?? stdout, stderr: toFile(2) ?? stderr }
  const console = openConsole(outputs, (error) => {
    interrupts.interrupt(outputClosed(error))
  })
  const exitCode = await runCommandLine(argv, {
    env,
    cwd: process.cwd(),
    console,
    interrupts,
    stdin: isHeld ? undefined : input,
  })
  // ssh uses 255 for a lost connection, so return another code.
  return isHeld && exitCode === SSH_FAILED ? SSH_FAILED - 1 : exitCode
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

export async function runCommandLine(
  argv: readonly string[],
  given: Omit<CommandContext, 'exitCode'>,
): Promise<number> {
  const context: CommandContext = { ...given, exitCode: 0 }
  const { console, interrupts } = context
  const exitCode = await runParsed(argv, context).finally(async () => {
    await Promise.race([console.flush(), aborted(interrupts.kill)])
  })
  return exitCode === 0 && console.isIncomplete ? OUTPUT_LOST : exitCode
}

async function runParsed(argv: readonly string[], context: CommandContext): Promise<number> {
  const { console, interrupts } = context
  try {
    const { printed, command, texts, words } = await parse(argv, context.cwd)
    if (printed !== '') console.write('stdout', `${printed}\n`)
    if (texts === undefined) return 0
    if (command === undefined) {
      const { startJob } = await import('./run.ts')
      await startJob(texts, words, context)
    } else await command.run(readTexts(texts, command.flags) as never, context, words)
    return context.exitCode
  } catch (error) {
    // An interrupted command throws the reason of its abort signal.
    if (error === interrupts.stop.reason) return (error as Interruption).exitCode
    if (isSystemError(error)) {
      console.print('stderr', `tsrun: ${error.message}\n`)
      return USAGE
    }
    if (!isTsrError(error)) throw error
    // Omit the error's advice, which addresses authors of scripts.
    const { message } = error.code === 'ERR_TSR_ARGUMENT' ? usageError(reasonOf(error)) : error
    const page = commandNames.includes(argv[0] ?? '') ? `See tsrun ${argv[0]!} --help.` : HELP
    console.write('stderr', `tsrun: ${message.replace(HELP, page)}\n`)
    return exitCodeOfError(error)
  }
}

/** Whether a system call failed, for example for a path that is a loop of links, or on a full disk. */
function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return isObject(error) && typeof error['syscall'] === 'string'
}

export function readTexts(texts: Readonly<Record<string, string>>, flags: Flags): object {
  const values = Object.entries(flags).map(([name, { reads, fallback }]) => {
    const value = texts[name] ?? fallback
    if (value === undefined || reads === undefined) return [name, value]
    return [name, readSetting({ value, source: `--${name}` }, reads)]
  })
  return Object.fromEntries(values) as object
}
