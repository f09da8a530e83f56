// Interleaved, question 2: the best number of chunks, if each pass takes some time for itself.
//
//   npx tsx examples/solutions/interleaved-chunks.ts
//
// Four ranks and eight micro-batches; the passes through all chunks of a rank take 2 and 4 ms. With v
// chunks, each pass is 1/v as long, and takes c more for its message and the calls of its kernels:
//
//   (v M + R - 1) (6 / v + 2c)

import { schedule } from '@tsrun/training/planning'
import { prove } from '../lib/prove.ts'

const [R, M, FORWARD, BACKWARD] = [4, 8, 2, 4]
const counts = [1, 2, 4]

/** Milliseconds of a step. */
function stepTime(v: number, c: number): number {
  const plan = schedule(v === 1 ? '1f1b' : 'interleaved', {
    ...{ stages: v * R, ranks: R, microbatches: M },
  })
  return plan.simulate({ forward: FORWARD / v + c, backward: BACKWARD / v + c }).makespan
}

const best = [0, 0.2, 0.6].map((c) => {
  const times = counts.map((v) => stepTime(v, c))
  const least = counts[times.indexOf(Math.min(...times))]!
  const shown = times.map((time) => time.toFixed(1)).join(', ')
  console.log(`${c} ms more for each pass: ${shown} ms; best: ${least}`)
  const formula = counts.map((v) => (v * M + R - 1) * ((FORWARD + BACKWARD) / v + 2 * c))
  prove(
    'it is the formula',
    times.every((time, i) => Math.abs(time - formula[i]!) < 1e-9),
  )
  return least
})
prove('the more a pass costs, the fewer chunks', best.join() === '4,2,1')
