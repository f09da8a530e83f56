// Interleaved, question 3: numbers of micro-batches that are no multiple of the ranks.
//
//   npx tsx examples/solutions/interleaved-rounds.ts
//
// Micro-batches pass through the chunks in rounds of one for each rank. An incomplete round would leave
// ranks without work, so then all forward passes come first, and all micro-batches are held.

import { schedule } from '@tsrun/training/planning'
import { prove } from '../lib/prove.ts'

const [R, V] = [4, 2]
const runs = [8, 9, 10, 11, 12].map((M) => {
  const plan = schedule('interleaved', { stages: V * R, ranks: R, microbatches: M })
  const { bubble, ranks } = plan.simulate()
  const held = ranks[0]!.peakInFlight / V
  const [own, formula] = [bubble, (R - 1) / (V * M + R - 1)].map((b) => (100 * b).toFixed(1))
  console.log(`${M} micro-batches: bubble ${own!} %, formula ${formula!} %, rank 0 holds ${held}`)
  return { M, held, isFormula: own === formula }
})
prove(
  'the formula holds for multiples of the ranks',
  runs.every(({ M, isFormula }) => isFormula === (M % R === 0)),
)
prove(
  'otherwise rank 0 holds all',
  runs.every(({ M, held }) => (held === M) === M % R > 0),
)
