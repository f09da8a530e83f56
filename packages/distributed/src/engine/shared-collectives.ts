import { chooseShared, type SharedContext } from '../shared/choose.ts'
import { Epochs } from '../shared/epochs.ts'
import { FlatRun } from '../shared/flat-run.ts'
import { WindowRun } from '../shared/window-run.ts'
import type { TransportCollectives } from '../transports/transport-collectives.ts'

/** Runs the collectives of ranks that share memory without messages. */
export function sharedCollectives(context: SharedContext): TransportCollectives {
  const { slots, waiting } = context
  /**
   * The epochs of each group, by id. Ids are never reused, so two groups never use the same slots.
   */
  const epochs = Array.from(
    { length: slots.exposingGroups },
    (_, group) => new Epochs(context.epochs, group),
  )
  return {
    take: (operation, group) => {
      const algorithm = chooseShared(operation, group, context)
      return algorithm && { ...operation, algorithm }
    },
    run: (running) => {
      const Run = running.operation.algorithm === 'flat' ? FlatRun : WindowRun
      const run = new Run(context, epochs[running.group.id]!, running)
      run.restart()
      return run
    },
    progress: () => {
      let moved = false
      for (let i = waiting.length - 1; i >= 0; i--) {
        const run = waiting[i]!
        const isRunning = run.running.state === 'running'
        if (isRunning && !run.done) continue
        waiting.splice(i, 1)
        if (!isRunning) continue
        moved = true
        run.running.resume(run)
      }
      slots.isAwaited = waiting.length > 0
      return moved
    },
  }
}
