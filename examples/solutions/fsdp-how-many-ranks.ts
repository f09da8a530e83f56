// FSDP, question 1: how many ranks a model needs.
//
//   npx tsx examples/solutions/fsdp-how-many-ranks.ts
//
// 2.5 billion parameters with Adam, and 24 GB for their state on each rank. Activations come on top.

import { stateBytes } from '@tsrun/training'
import { prove } from '../lib/prove.ts'

const [PARAMETERS, MEMORY] = [2.5e9, 24e9]

/** The smallest number of ranks, up to 1024, whose state fits. */
function ranksFor(stage: 0 | 1 | 2 | 3): number | undefined {
  for (let ranks = 1; ranks <= 1024; ranks++) {
    if (stateBytes(stage, { parameters: PARAMETERS, ranks }) <= MEMORY) return ranks
  }
  return undefined
}

const needed = ([0, 1, 2, 3] as const).map((stage) => {
  const ranks = ranksFor(stage)
  console.log(`stage ${stage}: ${ranks === undefined ? 'never' : `${ranks} ranks`}`)
  return ranks
})
// 16 P; 8 P + 8 P / n; 4 P + 12 P / n; 16 P / n
const byHand = [8, 12, 16].map((shared, i) => {
  const own = [8, 4, 0][i]! * PARAMETERS
  return Math.ceil((shared * PARAMETERS) / (MEMORY - own))
})
prove('replicas never fit', needed[0] === undefined)
prove(
  'the formulas say the same',
  byHand.every((ranks, i) => ranks === needed[i + 1]),
)
