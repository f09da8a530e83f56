/** Something on the command line is wrong: one line for the reader, exit code 2. */
export class UsageError extends Error {
  code = 'ERR_BENCH_USAGE'
}

/** A measured program failed: its last words for the reader, exit code 1. */
export class RunError extends Error {
  code = 'ERR_BENCH_RUN'
}
