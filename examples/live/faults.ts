import type { WorldFault } from '@tsrun/training/browser'
import { makeCalls, RANKS, type FaultName } from './fault-calls.ts'
import { runJob, type LinkEnds } from './job.ts'

/** Milliseconds from the first failure until the other ranks are stopped, as `tsrun` does. */
const STOP_AFTER = 100
/** The round in which the world injects a fault: all ranks are in a call then. */
const ROUND = 44

/** The fault that the world injects; undefined if the program itself makes the mistake. */
export function injectedFault(name: FaultName, { rank, peer }: LinkEnds): WorldFault | undefined {
  if (name === 'stop') return { kind: 'lose', rank }
  if (name === 'cut') return { kind: 'half-close', rank, peer }
  return name === 'corrupt' ? { kind: 'corrupt', rank } : undefined
}

/**
 * Runs all-reduces on four ranks until one of them fails.
 *
 * @returns the report of `tsrun`
 */
export async function breakWorld(name: FaultName, ends: LinkEnds): Promise<string> {
  const fault = injectedFault(name, ends)
  let stop = (): void => undefined
  const stopped = new Promise<void>((resolve) => {
    stop = () => setTimeout(resolve, STOP_AFTER)
  })
  return await runJob(
    { size: RANKS, memory: 8 << 20 },
    (inject) => {
      if (fault !== undefined) inject({ ...fault, round: ROUND })
    },
    async (group) => {
      const calls = makeCalls(name, ends.rank, group, () => stopped)
      calls.catch(stop)
      await Promise.race([calls, stopped])
    },
  )
}
