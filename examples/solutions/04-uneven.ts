// Lesson 04, question 3: what an uneven division of the layers costs.
//
//   npx tsx examples/solutions/04-uneven.ts
//
// In the naive pipeline, a micro-batch passes all stages before the next one begins. A step takes the sum
// of all passes, wherever the network is cut. With 1F1B, the slowest stage sets the pace.

import { schedule } from '@tsrun/training/planning'
import { prove } from '../lib/prove.ts'

/** The time of a step with 8 micro-batches, for the times of a forward pass through each stage. */
function stepTime(name: 'naive' | '1f1b', forward: readonly number[]): number {
  const backward = forward.map((time) => 2 * time)
  const plan = schedule(name, { stages: forward.length, microbatches: 8 })
  return plan.simulate({ forward, backward }).makespan
}

const even = [2, 2, 2, 2]
const uneven = [1, 1, 1, 5]
const times = (['naive', '1f1b'] as const).map((name) => {
  const [a, b] = [even, uneven].map((forward) => stepTime(name, forward)) as [number, number]
  console.log(`${name}: even ${a}, uneven ${b}`)
  return { even: a, uneven: b }
})
prove('the naive pipeline does not care', times[0]!.even === times[0]!.uneven)
prove('with 1F1B, the slowest stage works all the time', times[1]!.uneven >= 8 * (5 + 10))
