// Lesson 05, question 3: the best number of micro-batches.
//
//   npx tsx examples/solutions/05-how-many.ts
//
// Let the passes of a whole batch through a stage take T, and each pass c more, however small its
// micro-batch is: for the calls of its kernels and its message. A step of M micro-batches takes
//
//   (M + S - 1) (T / M + 2c)        which is least at M = sqrt((S - 1) T / 2c)

import { schedule } from '@tsrun/training/planning'
import { prove } from '../lib/prove.ts'

const [STAGES, FORWARD, BACKWARD, EACH] = [4, 8, 16, 0.05]

/** Milliseconds of a step of `microbatches` micro-batches. */
function stepTime(microbatches: number): number {
  const forward = FORWARD / microbatches + EACH
  const backward = BACKWARD / microbatches + EACH
  return schedule('gpipe', { stages: STAGES, microbatches }).simulate({ forward, backward })
    .makespan
}

for (const microbatches of [1, 4, 8, 27, 64, 256]) {
  console.log(`${microbatches} micro-batches: ${stepTime(microbatches).toFixed(1)} ms`)
}
const counts = Array.from({ length: 128 }, (_, i) => i + 1)
const best = counts.reduce((a, b) => (stepTime(b) < stepTime(a) ? b : a))
const formula = Math.sqrt(((STAGES - 1) * (FORWARD + BACKWARD)) / (2 * EACH))
console.log(`simulated: ${best} are best; by the formula ${formula.toFixed(1)}`)
prove('the simulator and the formula agree', Math.abs(best - formula) < 1)
