/** Prints a claim, in a job on rank 0. If it does not hold, the process ends with exit code 1. */
export function prove(claim: string, holds: boolean): void {
  if (!holds) process.exitCode = 1
  if (!holds || (process.env['RANK'] ?? '0') === '0') {
    console.log(`${holds ? 'proved' : 'WRONG'}: ${claim}`)
  }
}
