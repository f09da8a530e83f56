// Pipeline, question 3: stages of equally many layers, or of equally much work.
//
//   npx tsx examples/solutions/pipeline-cut.ts
//
// The first layer of the network reads 784 numbers, the others 256. It computes no gradient of its input, and
// is as much work as two others. The simulator takes the work of a stage as its time.

import { splitLayers, type LayerRange } from '@tsrun/training'
import { schedule } from '@tsrun/training/planning'
import { costsOf } from '../lib/course.ts'
import { percent } from '../lib/output.ts'
import { prove } from '../lib/prove.ts'

const [LAYERS, STAGES, MICROBATCHES] = [16, 4, 8]
const costs = costsOf({ layers: LAYERS, width: 256 })

function simulate(ranges: readonly LayerRange[]): { bubble: number; makespan: number } {
  const work = ranges.map(({ from, to }) => costs.slice(from, to).reduce((a, b) => a + b))
  const forward = work.map((cost) => cost / 3)
  const backward = work.map((cost) => (2 * cost) / 3)
  const plan = schedule('1f1b', { stages: STAGES, microbatches: MICROBATCHES })
  return plan.simulate({ forward, backward })
}

const cuts = {
  'by number': splitLayers(LAYERS, STAGES),
  'by work': splitLayers(LAYERS, STAGES, { costs }),
}
const judged = Object.entries(cuts).map(([name, ranges]) => {
  const { bubble, makespan } = simulate(ranges)
  const layers = ranges.map(({ from, to }) => to - from).join(', ')
  console.log(`${name}: ${layers} layers, bubble ${percent(bubble)}`)
  return makespan
})
const [plain, balanced] = judged as [number, number]
prove('stages of equal work are faster', balanced < plain)
