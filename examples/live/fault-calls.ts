import type { ProcessGroup } from '@tsrun/distributed/browser'

/** The faults of the page, by the text of their button. */
export const faults = {
  stop: 'Stop the rank',
  cut: 'Cut its link',
  corrupt: 'Change a byte that it sends',
  mismatch: 'Mismatch its call',
  deadlock: 'Let every rank receive',
  late: 'Keep it busy',
} as const

export type FaultName = keyof typeof faults

export const RANKS = 4
export const CALLS = 30
/** The call in which the programs with a mistake go wrong. */
const WRONG = 3

/**
 * Makes the calls of a rank, with the mistakes of a fault. The rank after the one with the fault gives
 * up first, so that the same rank reports each time.
 *
 * @param victim - the rank with the fault
 * @param task - what it does instead of a call, if it is busy
 */
export async function makeCalls(
  name: FaultName,
  victim: number,
  group: ProcessGroup,
  task: () => Promise<unknown>,
): Promise<void> {
  const timeout = group.rank === (victim + 1) % RANKS ? 1000 : 10_000
  for (let call = 0; call < CALLS; call++) {
    const isWrong = call === WRONG && group.rank === victim
    if (name === 'deadlock' && call === WRONG) {
      await group.recv(new Float32Array(1), group.next, { timeout })
    } else if (name === 'late' && isWrong) {
      await task()
      return
    } else {
      const length = name === 'mismatch' && isWrong ? 5 : 4
      await group.allReduce(new Float32Array(length), { algorithm: 'ring', timeout })
    }
  }
}
