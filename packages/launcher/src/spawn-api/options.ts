import type { ChaosOptions } from '../chaos/plan.ts'
import { anything, count, declareOptions, filled, where } from '@tsrun/core'
import type { StreamName } from '../logs/lines.ts'

/** A line of a rank's output. */
export interface OutputLine {
  readonly rank: number
  readonly stream: StreamName
  /** Without its end. */
  readonly text: string
}

export interface SpawnOptions<Args extends readonly unknown[] = readonly unknown[]> {
  /** The number of ranks. Default 1. */
  readonly nproc?: number
  /**
   * What the function of every rank gets after its rank: plain data, typed arrays, Maps, Sets, Errors;
   * at most 256 MiB together.
   */
  readonly args?: Args
  /** The export of a module that is called; only with a module. Default: `default`. */
  readonly export?: string
  /**
   * The file from which the `import()` of a function resolves modules, usually `import.meta.url`.
   * Default: the script of this process.
   */
  readonly base?: string | URL
  /** Variables that are added to the environment of this process; undefined removes a variable. */
  readonly env?: Readonly<Record<string, string | undefined>>
  /** More arguments of Node, as in `child_process.fork`. Default: none. */
  readonly execArgv?: readonly string[]
  /**
   * `inherit`: the output goes to that of this process, each line with its rank before it; `ignore`;
   * or a function that gets the lines. Default `inherit`.
   */
  readonly output?: 'inherit' | 'ignore' | ((line: OutputLine) => void)
  /** Milliseconds after which the ranks are stopped. Default: no limit. */
  readonly timeout?: number
  /** Stops all ranks. */
  readonly signal?: AbortSignal
  /** Milliseconds between SIGTERM and SIGKILL when ranks are stopped. Default 10 000. */
  readonly grace?: number
  /** Faults that are brought over the ranks on purpose, as `tsrun --chaos` does. Default: none. */
  readonly chaos?: ChaosOptions
}

/** The longest time of a timer, in milliseconds. */
const LONGEST = 2 ** 31 - 1

/** Fills in the defaults. @throws ERR_TSR_ARGUMENT */
export const readOptions = declareOptions({
  nproc: count({ from: 1, to: 4096 }).default(1),
  args: where<readonly unknown[]>(Array.isArray, 'an array').default([]),
  export: filled('the name of an export').optional(),
  base: anything<string | URL>(),
  env: where<NonNullable<SpawnOptions['env']>>(isEnvironment, 'an object of texts').default({}),
  execArgv: where<readonly string[]>(Array.isArray, 'an array of arguments of Node').default([]),
  output: where<NonNullable<SpawnOptions['output']>>(
    isOutput,
    "'inherit', 'ignore' or a function",
  ).default('inherit'),
  timeout: count({ from: 1, to: LONGEST }).optional(),
  signal: anything<AbortSignal>(),
  grace: count({ from: 0, to: LONGEST }).default(10_000),
  chaos: anything<ChaosOptions>(),
})

/** The options, complete. */
export type CompleteOptions = ReturnType<typeof readOptions>

function isEnvironment(env: unknown): boolean {
  if (typeof env !== 'object' || env === null || Array.isArray(env)) return false
  return Object.values(env).every((value) => value === undefined || typeof value === 'string')
}

function isOutput(output: unknown): boolean {
  return output === 'inherit' || output === 'ignore' || typeof output === 'function'
}
