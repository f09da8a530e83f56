import type { RankProcess } from '../spawn/rank-process.ts'

/**
 * Lets Ctrl-Z and `fg` reach the ranks, which the terminal does not know because they are in
 * process groups of their own. The returned function ends it.
 */
export function relayJobControl(ranks: readonly RankProcess[]): () => void {
  const suspend = (): void => {
    for (const rank of ranks) rank.relay('SIGSTOP')
    process.kill(process.pid, 'SIGSTOP')
  }
  const resume = (): void => {
    for (const rank of ranks) rank.relay('SIGCONT')
  }
  process.on('SIGTSTP', suspend).on('SIGCONT', resume)
  return () => {
    process.off('SIGTSTP', suspend).off('SIGCONT', resume)
  }
}
