// Zero bubble, question 2: can another schedule have a smaller bubble?
//
//   npx tsx examples/solutions/zero-bubble-bound.ts
//
// Let F, I and W take 1. The last rank cannot start before a micro-batch has passed the S - 1 ranks before
// it, and then has 3 M passes to run. So no schedule takes less than 3 M + S - 1.

import { schedule } from '@tsrun/training/planning'
import { prove } from '../lib/prove.ts'

for (const [S, M] of [
  [2, 8],
  [4, 8],
  [8, 16],
] as const) {
  const stepTime = (name: '1f1b' | 'zb-h1'): number =>
    schedule(name, { stages: S, microbatches: M }).simulate().makespan
  const [plain, own] = [stepTime('1f1b'), stepTime('zb-h1')]
  const least = 3 * M + S - 1
  console.log(`${S} ranks, ${M} micro-batches: 1F1B ${plain}, zb-h1 ${own}, at least ${least}`)
  prove('zb-h1 reaches the bound', own === least)
  prove('its bubble is a third of that of 1F1B', 3 * (own - 3 * M) === plain - 3 * M)
}
