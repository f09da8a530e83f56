import { worldReport } from '@tsrun/launcher/report'
import { runWorld, type WorldFault, type WorldOptions } from '@tsrun/training/browser'
import { makeCalls, RANKS, type FaultName } from './fault-calls.ts'

const injected: Partial<Record<FaultName, WorldFault['kind']>> = {
  stop: 'lose',
  cut: 'half-close',
  corrupt: 'corrupt',
}
/** The round in which the world injects a fault: all ranks are in a call then. */
const ROUND = 44
/** Milliseconds from the first failure until the other ranks are stopped, as `tsrun` does. */
const STOP_AFTER = 100

/**
 * Runs all-reduces on four ranks until one of them fails.
 *
 * @param victim - the rank with the fault
 * @returns the report of `tsrun`
 */
export async function breakWorld(name: FaultName, victim: number): Promise<string> {
  const kind = injected[name]
  let report = ''
  let stop = (): void => undefined
  const stopped = new Promise<void>((resolve) => {
    stop = () => setTimeout(resolve, STOP_AFTER)
  })
  const options: WorldOptions = {
    size: RANKS,
    memory: 8 << 20,
    faults: kind === undefined ? [] : [{ kind, rank: victim, round: ROUND }],
    onErrors: (_, world) => {
      report = worldReport(world)
    },
  }
  try {
    await runWorld(options, async (group) => {
      const calls = makeCalls(name, victim, group, () => stopped)
      calls.catch(stop)
      await Promise.race([calls, stopped])
    })
  } catch (error) {
    // A world that cannot even begin has no report.
    if (report === '') throw error
  }
  return report
}
