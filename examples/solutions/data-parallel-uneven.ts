// Data parallel, question 2: a batch that is sharded unevenly.
//
//   npx tsrun --nproc 2 examples/solutions/data-parallel-uneven.ts
//
// Rank 0 has 96 of 128 images, rank 1 has 32. The mean of their mean gradients gives each image of rank 1
// three times the weight of one of rank 0. The sums have to be added first, and divided once.

import { initProcessGroup } from '@tsrun/distributed'
import { allReduceTensor, batches, loadBackend, mnist, shardedMLP, tf } from '@tsrun/training'
import { addGradients, differenceOf, type Gradients } from '../lib/gradients.ts'
import { prove } from '../lib/prove.ts'

const [BATCH, FIRST] = [128, 96]

const group = await initProcessGroup()
await loadBackend()
const model = shardedMLP({ layers: 4, hidden: 32 }).build()
const [batch] = batches(mnist({ split: 'train' }), { batch: BATCH })
const [from, rows] = group.rank === 0 ? [0, FIRST] : [FIRST, BATCH - FIRST]

/** Gradients of this rank's images, times `scale`, combined over the ranks. */
async function combined(scale: number, op: 'sum' | 'avg'): Promise<Gradients> {
  const own: Gradients = new Map()
  const [inputs, labels] = [batch!.inputs(), batch!.labels()]
  const share = { inputs: tf.slice(inputs, from, rows), labels: tf.slice(labels, from, rows) }
  tf.dispose([inputs, labels])
  addGradients(model, share, scale, own)
  const all: Gradients = new Map()
  for (const [name, gradient] of own) all.set(name, await allReduceTensor(group, gradient, { op }))
  return all
}

// For comparison, each rank computes the gradient of the whole batch.
const whole: Gradients = new Map()
addGradients(model, { inputs: batch!.inputs(), labels: batch!.labels() }, 1 / BATCH, whole)
const ofMeans = differenceOf(whole, await combined(1 / rows, 'avg'))
const ofSums = differenceOf(whole, await combined(1 / BATCH, 'sum'))
if (group.rank === 0) {
  console.log(`mean of the means: differs by ${(100 * ofMeans).toFixed(1)} %`)
  console.log(`sum of the sums, divided once: differs by ${ofSums.toExponential(1)}`)
}
prove('the mean of means is another gradient', ofMeans > 0.01)
prove('the sum of sums is that of the whole batch', ofSums < 1e-5)
await group.destroy()
