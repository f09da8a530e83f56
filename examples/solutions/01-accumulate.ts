// Lesson 01, question 2: the gradient of a batch from its parts.
//
//   npx tsx examples/solutions/01-accumulate.ts
//
// The loss of a batch is a mean over its images. Gradients of parts may be added, if each part is divided
// by the size of the whole batch. Then the sum is the gradient of the mean.

import { batches, cutBatch, loadBackend, mnist, shardedMLP } from '@tsrun/training'
import { addGradients, differenceOf, normOf, type Gradients } from '../lib/gradients.ts'
import { prove } from '../lib/prove.ts'

const [BATCH, PARTS] = [128, 4]

await loadBackend()
const model = shardedMLP({ layers: 4, hidden: 32 }).build()
const [batch] = batches(mnist({ split: 'train' }), { batch: BATCH })
const parts = cutBatch(batch!, PARTS)

const whole: Gradients = new Map()
addGradients(model, { inputs: batch!.inputs(), labels: batch!.labels() }, 1 / BATCH, whole)

/** The sum of the gradients of all parts, each times `scale`. */
function accumulate(scale: number): Gradients {
  const sum: Gradients = new Map()
  for (let part = 0; part < PARTS; part++) {
    const rows = { inputs: parts.inputs(part), labels: parts.labels(part) }
    addGradients(model, rows, scale, sum)
  }
  return sum
}

const right = accumulate(1 / BATCH)
const wrong = accumulate(1 / parts.rows[0]!)
const factor = normOf(wrong) / normOf(whole)
console.log(`divided by the batch: differs by ${differenceOf(whole, right).toExponential(1)}`)
console.log(`divided by the part: ${factor.toFixed(3)} times as large`)
prove(`${PARTS} parts have the gradient of the batch`, differenceOf(whole, right) < 1e-5)
prove('a forgotten division changes its length only', Math.abs(factor - PARTS) < 1e-4)
