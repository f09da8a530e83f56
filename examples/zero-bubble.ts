// Backwards in halves: the zero bubble schedule H1 (Qi et al., Zero Bubble Pipeline Parallelism, 2023).
//
//   npx tsrun --nproc 4 examples/zero-bubble.ts
//
// A backward does two things: it finds the gradient of its input (I), for which the rank before waits,
// and the gradients of its weights (W), for which nobody waits until the optimizer runs. 1F1B does
// both at once, so the rank before waits twice as long as it has to. Here I goes on its way at once,
// and W fills the time in which a rank would have been idle:
//
//   rank 3  .  .  .  F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 ...
//
// Where F, I and W take as long, the bubble is a third of 1F1B's. A micro-batch's activations stay
// until its W, so every rank holds as many as rank 0 does: compare them below.

import { initProcessGroup } from '@tsrun/distributed'
import { compareSchedules } from './lib/compare-schedules.ts'

const MICROBATCHES = 8

const group = await initProcessGroup()
await compareSchedules(group, [{ schedule: '1f1b' }, { schedule: 'zb-h1' }], MICROBATCHES)
await group.destroy()
