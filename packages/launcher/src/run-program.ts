import { execFile, type ExecFileException } from 'node:child_process'

/** Options of `runProgram`. */
export interface RunOptions {
  readonly cwd?: string
  readonly env?: NodeJS.ProcessEnv
  /** Milliseconds; default 20 s. */
  readonly limit?: number
  readonly signal?: AbortSignal
}

/** Runs a program with a time limit. Does not throw if the program cannot start. */
export function runProgram(
  program: string,
  args: readonly string[],
  { limit = 20_000, ...options }: RunOptions = {},
) {
  return new Promise<{
    readonly stdout: string
    readonly stderr: string
    /** Why the program failed; undefined for exit code 0. */
    readonly failure: string | undefined
  }>((resolve) => {
    const end = (error: ExecFileException | null, stdout = '', stderr = ''): void => {
      const failure =
        error === null
          ? undefined
          : error.killed === true
            ? `no answer within ${limit / 1000} s`
            : typeof error.signal === 'string'
              ? `ended by ${error.signal}`
              : `exit code ${String(error.code)}`
      resolve({ stdout, stderr, failure })
    }
    try {
      execFile(program, args, { ...options, timeout: limit, killSignal: 'SIGKILL' }, end)
    } catch (error) {
      end(error as Error)
    }
  })
}
