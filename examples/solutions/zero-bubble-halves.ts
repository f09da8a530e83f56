// Zero bubble, question 3: halves of unequal length.
//
//   npx tsx examples/solutions/zero-bubble-halves.ts
//
// A rank waits for I of the next one, and fills the time with W. The shorter W is, the less it fills:
//
//   M (F + I + W) + (S - 1) (F + I - W)        for W of at most F

import { schedule } from '@tsrun/training/planning'
import { prove } from '../lib/prove.ts'

const [S, M, F] = [4, 8, 1]
const stepTime = (inputGradient: number, weightGradient: number): number =>
  schedule('zb-h1', { stages: S, microbatches: M }).simulate({
    ...{ forward: F, inputGradient, weightGradient },
  }).makespan

for (const W of [1, 0.5, 0]) {
  const I = 2 - W
  const time = stepTime(I, W)
  console.log(`F ${F}, I ${I}, W ${W}: a step takes ${time}`)
  prove('it is the formula', Math.abs(time - (M * (F + I + W) + (S - 1) * (F + I - W))) < 1e-9)
}
const plain = schedule('1f1b', { stages: S, microbatches: M }).simulate().makespan
prove('without W, it is 1F1B', stepTime(2, 0) === plain)
