// Lesson 06, question 2: from how many micro-batches on is the bubble below 10 %?
//
//   npx tsx examples/solutions/06-bubble.ts
//
// (S - 1) / (M + S - 1) < 1/10 is M > 9 (S - 1). The simulator counts up until it agrees.

import { schedule } from '@tsrun/training/planning'
import { prove } from '../lib/prove.ts'

function bubbleOf(stages: number, microbatches: number): number {
  return schedule('1f1b', { stages, microbatches }).simulate().bubble
}

for (const stages of [2, 4, 8]) {
  let count = 1
  // A tenth, but for rounding, is not below a tenth.
  while (bubbleOf(stages, count) > 0.1 - 1e-9) count++
  const [before, after] = [count - 1, count].map((m) => (100 * bubbleOf(stages, m)).toFixed(2))
  console.log(`${stages} stages: ${count} micro-batches (${before!} % before, ${after!} % now)`)
  prove(`it is the first above 9 x ${stages - 1}`, count === 9 * (stages - 1) + 1)
}
