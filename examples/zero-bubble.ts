// Backwards in two halves: the zero bubble schedule H1 (Qi et al., Zero Bubble Pipeline Parallelism,
// 2023).
//
//   npx tsrun --nproc auto examples/zero-bubble.ts
//   npx tsrun --nproc auto examples/zero-bubble.ts --stages 8    (only says what eight stages promise)
//
// A backward computes the gradient of its input (I), for which the previous rank waits, and the gradients
// of its weights (W), which are not needed until the optimizer runs. 1F1B computes both at once, so the
// previous rank waits twice as long as necessary. Here the result of I is sent at once, and W fills the
// time in which a rank would be idle. The last of four ranks:
//
//   rank 3  .  .  .  F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 ...
//
// If F, I and W take the same time, the bubble is a third of that of 1F1B. The activations of a
// micro-batch are held until its W, so every rank holds as many as rank 0 does: compare them in the output.
// It helps where each rank has a core, the bubble of 1F1B is large, and I and W together take no longer
// than B. The output says how long a step should take.
//
// Read: docs/pipeline.md#the-schedules. Exercises: examples/exercises.md#zero-bubble

import { comparisonFlags, compareSchedules } from './lib/compare-schedules.ts'
import { readFlags } from './lib/flags.ts'
import { startJob } from './lib/job.ts'
import { checkRanks, predictStages } from './lib/stages.ts'

const flags = readFlags(comparisonFlags)
predictStages('zb-h1', flags)
checkRanks(flags.layers)
const group = await startJob(flags)
await compareSchedules(group, [{ schedule: '1f1b' }, { schedule: 'zb-h1' }], flags)
await group.destroy()
