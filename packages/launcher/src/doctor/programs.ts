import { execFile } from 'node:child_process'
import { createRequire } from 'node:module'

/** The file that the first of these places finds the package at. */
export function resolveFrom(places: readonly string[], specifier: string): string | undefined {
  for (const place of places) {
    try {
      return createRequire(place).resolve(specifier)
    } catch {
      // the next place
    }
  }
  return undefined
}

export interface RunResult {
  readonly stdout: string
  readonly stderr: string
  /** Why it failed; undefined: exit code 0. */
  readonly failure: string | undefined
}

export interface RunOptions {
  readonly cwd?: string
  readonly env?: NodeJS.ProcessEnv
  /** Milliseconds; default 20 s. */
  readonly limit?: number
  /** Ends it. */
  readonly signal?: AbortSignal
}

/** Runs a program to its end, or as long as it may. */
export function run(
  program: string,
  args: readonly string[],
  options: RunOptions = {},
): Promise<RunResult> {
  const { limit = 20_000, ...rest } = options
  return new Promise((resolve) => {
    execFile(
      program,
      args,
      { ...rest, timeout: limit, killSignal: 'SIGKILL' },
      (error, stdout, stderr) => {
        const failure =
          error === null
            ? undefined
            : error.killed === true
              ? `no answer within ${limit / 1000} s`
              : typeof error.signal === 'string'
                ? `ended by ${error.signal}`
                : `exit code ${String(error.code)}`
        resolve({ stdout, stderr, failure })
      },
    )
  })
}
