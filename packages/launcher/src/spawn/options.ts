import type { ChaosOptions } from '../job/chaos/plan.ts'
import { anything, count, declareOptions, filled, where } from '@tsrun/core'
import type { StreamName } from '../logs/lines.ts'

/** A line of a rank's output. */
export interface OutputLine {
  readonly rank: number
  readonly stream: StreamName
  /** The line without its terminator. */
  readonly text: string
}

/** Options of `spawn`. */
export interface SpawnOptions<Args extends readonly unknown[] = readonly unknown[]> {
  /** Number of ranks. Default 1. */
  readonly nproc?: number
  /**
   * The arguments of each rank's function that follow its first argument, the rank. Plain data, typed
   * arrays, Maps, Sets, Errors; at most 256 MiB in total.
   */
  readonly args?: Args
  /** Name of the export to call; only with a module. Default: `default`. */
  readonly export?: string
  /**
   * The file from which the `import()` of a function resolves modules, usually `import.meta.url`.
   * Default: the script of this process.
   */
  readonly base?: string | URL
  /** Variables to add to the environment of the ranks; undefined removes an inherited variable. */
  readonly env?: Readonly<Record<string, string | undefined>>
  /** Additional arguments of Node, as in `child_process.fork`. Default: none. */
  readonly execArgv?: readonly string[]
  /**
   * `inherit`: writes each line to the output of this process, with its rank as prefix. `ignore`: drops
   * the output. A function receives each line. Default `inherit`.
   */
  readonly output?: 'inherit' | 'ignore' | ((line: OutputLine) => void)
  /** Milliseconds after which the ranks are stopped. Default: no limit. */
  readonly timeout?: number
  /** Stops all ranks. */
  readonly signal?: AbortSignal
  /** Milliseconds between SIGTERM and SIGKILL when ranks are stopped. Default 10 000. */
  readonly grace?: number
  /** Faults to inject, as with `tsrun --chaos`. Default: none. */
  readonly chaos?: ChaosOptions
}

/** Longest delay of a timer in milliseconds. */
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
    (output) => ['inherit', 'ignore'].includes(output as string) || typeof output === 'function',
    "'inherit', 'ignore' or a function",
  ).default('inherit'),
  timeout: count({ from: 1, to: LONGEST }).optional(),
  signal: anything<AbortSignal>(),
  grace: count({ from: 0, to: LONGEST }).default(10_000),
  chaos: anything<ChaosOptions>(),
})

export type CompleteOptions = ReturnType<typeof readOptions>

function isEnvironment(env: unknown): boolean {
  if (typeof env !== 'object' || env === null || Array.isArray(env)) return false
  return Object.values(env).every((value) => value === undefined || typeof value === 'string')
}
