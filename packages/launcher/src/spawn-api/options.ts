import { refuseUnknown, shown, tsrError } from '@tsrun/core'
import type { StreamName } from '../logs/lines.ts'

/** A line of a rank's output. */
export interface OutputLine {
  readonly rank: number
  readonly stream: StreamName
  /** Without its end. */
  readonly text: string
}

export interface SpawnOptions<Args extends readonly unknown[] = readonly unknown[]> {
  /** How many ranks. Default 1. */
  readonly nproc?: number
  /**
   * What every rank's function gets after its rank: plain data, typed arrays, Maps, Sets, Errors; at
   * most 256 MiB together.
   */
  readonly args?: Args
  /** The export of a module that is called; only with a module. Default: `default`. */
  readonly export?: string
  /**
   * The file from which a function's `import()` finds its modules: `import.meta.url`. Default: the
   * script of this process.
   */
  readonly base?: string | URL
  /** Laid on the environment of this process; undefined removes a variable. */
  readonly env?: Readonly<Record<string, string | undefined>>
  /** More arguments of Node, as of `child_process.fork`. Default: none. */
  readonly execArgv?: readonly string[]
  /**
   * `inherit`: to the output of this process, each line with the rank before it; `ignore`; or a
   * function that gets the lines. Default `inherit`.
   */
  readonly output?: 'inherit' | 'ignore' | ((line: OutputLine) => void)
  /** Milliseconds that the whole may take. Default: no limit. */
  readonly timeout?: number
  /** Stops all ranks. */
  readonly signal?: AbortSignal
  /** Milliseconds between SIGTERM and SIGKILL when ranks are stopped. Default 10 000. */
  readonly grace?: number
}

const KNOWN = Object.keys({
  nproc: true,
  args: true,
  export: true,
  base: true,
  env: true,
  execArgv: true,
  output: true,
  timeout: true,
  signal: true,
  grace: true,
} satisfies Record<keyof SpawnOptions, true>)

const LARGEST_NPROC = 4096
const LONGEST = 2 ** 31 - 1

/** The options, complete. */
export type CompleteOptions = Required<
  Omit<SpawnOptions, 'signal' | 'base' | 'timeout' | 'export'>
> &
  Pick<SpawnOptions, 'signal'> & {
    readonly export: string | undefined
    readonly base: string | URL | undefined
    readonly timeout: number | undefined
  }

/** @throws ERR_TSR_ARGUMENT */
export function checkOptions(given: SpawnOptions): CompleteOptions {
  refuseUnknown(given, KNOWN)
  const { nproc = 1, args = [], env = {}, execArgv = [], output = 'inherit' } = given
  const { timeout, grace = 10_000, base, signal } = given
  checkNumber('nproc', nproc, 1, LARGEST_NPROC)
  if (timeout !== undefined) checkNumber('timeout', timeout, 1, LONGEST)
  checkNumber('grace', grace, 0, LONGEST)
  check('args', args, Array.isArray(args), 'an array')
  check('export', given.export, isOptional(given.export, 'string'), 'the name of an export')
  check('output', output, isOutput(output), "'inherit', 'ignore' or a function")
  check('env', env, isEnvironment(env), 'an object of texts')
  check('execArgv', execArgv, Array.isArray(execArgv), 'an array of arguments of Node')
  const complete = {
    nproc,
    args,
    export: given.export,
    base,
    env,
    execArgv,
    output,
    timeout,
    grace,
  }
  return signal === undefined ? complete : { ...complete, signal }
}

/** @throws ERR_TSR_ARGUMENT */
export function check(name: string, value: unknown, holds: boolean, expected: string): void {
  if (holds) return
  throw tsrError('ERR_TSR_ARGUMENT', { name, value: shown(value).slice(0, 80), expected })
}

function checkNumber(name: string, value: number, lowest: number, highest: number): void {
  const holds = Number.isInteger(value) && value >= lowest && value <= highest
  check(name, value, holds, `an integer from ${lowest} to ${highest}`)
}

function isOptional(value: unknown, type: 'string'): boolean {
  return value === undefined || typeof value === type
}

function isEnvironment(env: unknown): boolean {
  if (typeof env !== 'object' || env === null || Array.isArray(env)) return false
  return Object.values(env).every((value) => isOptional(value, 'string'))
}

function isOutput(output: unknown): boolean {
  return output === 'inherit' || output === 'ignore' || typeof output === 'function'
}
