import { loadWasm } from '@tsrun/training/browser'
import { runJob, type Inject } from './job.ts'
import { trainRank, type DigitSets, type Layout, type TrainedStep } from './training.ts'

/**
 * Runs `trainRank` on all ranks, in this thread.
 *
 * @param onStart - called before the ranks run, with a function that injects faults
 * @returns the report of `tsrun`; '' if no rank failed
 */
export async function trainInThread(
  layout: Layout,
  sets: DigitSets,
  onStep: (step: TrainedStep) => Promise<boolean>,
  onStart: (inject: Inject) => void = () => undefined,
): Promise<string> {
  await loadWasm({ math: 'exact' })
  return await runJob({ size: layout.ranks, seed: 3, memory: 32 << 20 }, onStart, (group) =>
    trainRank(group, layout, sets, onStep),
  )
}
