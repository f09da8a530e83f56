import { loadWasm, runWorld } from '@tsrun/training/browser'
import { trainRank, type DigitSets, type Layout, type TrainedStep } from './training.ts'

/** Runs `trainRank` on all ranks, in this thread. */
export async function trainInThread(
  layout: Layout,
  sets: DigitSets,
  onStep: (step: TrainedStep) => Promise<boolean>,
): Promise<void> {
  await loadWasm({ math: 'exact' })
  await runWorld({ size: layout.ranks, seed: 3, memory: 32 << 20 }, (group) =>
    trainRank(group, layout, sets, onStep),
  )
}
