/** Something on the command line is wrong: one line for the reader, exit code 2. */
export class UsageError extends Error {
  code = 'ERR_BENCH_USAGE'
}
