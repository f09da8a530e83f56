import { worldReport } from '@tsrun/launcher/report'
import {
  runWorld,
  type ProcessGroup,
  type WorldFault,
  type WorldOptions,
} from '@tsrun/training/browser'

/** Injects a fault into a running world. */
export type Inject = (fault: WorldFault) => void

/** A rank, and the other end of one of its links. */
export interface LinkEnds {
  readonly rank: number
  readonly peer: number
}

/**
 * Runs a world in this thread. As under `tsrun`, a rank whose program fails loses its connections.
 *
 * @param onStart - called before the ranks run, with a function that injects faults
 * @returns the report of `tsrun`; '' if no rank failed
 */
export async function runJob(
  options: WorldOptions,
  onStart: (inject: Inject) => void,
  program: (group: ProcessGroup) => Promise<void>,
): Promise<string> {
  let report = ''
  let inject: Inject = () => undefined
  const faults = (given: Inject): void => {
    inject = given
    onStart(given)
  }
  const onErrors: WorldOptions['onErrors'] = (_, world) => {
    report = worldReport(world)
  }
  try {
    await runWorld({ ...options, faults, onErrors }, async (group) => {
      const { rank } = group
      try {
        await program(group)
      } catch (error) {
        inject({ kind: 'lose', rank })
        throw error
      }
    })
  } catch (error) {
    // A world that cannot even begin has no report.
    if (report === '') throw error
  }
  return report
}
