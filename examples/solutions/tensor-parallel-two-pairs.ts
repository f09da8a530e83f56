// Tensor parallel, question 3: four layers as two pairs.
//
//   npx tsrun --nproc 2 examples/solutions/tensor-parallel-two-pairs.ts
//
// The example gathers the output of its third layer. As a second pair, the third layer is split by columns
// and the fourth by rows: no rank has a whole layer, and the ten scores are a sum over the ranks.

import { initProcessGroup } from '@tsrun/distributed'
import {
  batches,
  columnParallel,
  crossEntropy,
  loadBackend,
  mnist,
  parallelize,
  recordLoss,
  recordSegments,
  rowParallel,
  SGD,
  shardedMLP,
  sumInto,
  tf,
  type ParallelPlan,
  type Tensor,
} from '@tsrun/training'
import { prove } from '../lib/prove.ts'

const STEPS = 2
const pairs: ParallelPlan = {
  'layers.0': columnParallel(),
  'layers.1': rowParallel(),
  'layers.2': columnParallel(),
  'layers.3': rowParallel(),
}

const group = await initProcessGroup()
await loadBackend()

async function train(plan: ParallelPlan) {
  const model = parallelize(shardedMLP({ layers: 4, hidden: 64 }).build(), plan, group)
  const optimizer = new SGD({ learningRate: 0.1 })
  const losses: number[] = []
  const first = group.barrier().sequence
  for (const batch of batches(mnist({ split: 'train' }), { batch: 64 })) {
    const [x, labels, one] = [batch.inputs(), batch.labels(), tf.scalar(1)]
    const outputs = await recordSegments(model, x, { needsInputGradient: false })
    const loss = recordLoss(crossEntropy, outputs.value, labels)
    const outputGradient = loss.backward(one, () => undefined)!
    const gradients = new Map<string, Tensor>()
    await outputs.backward(outputGradient, sumInto(gradients))
    optimizer.step(model.parameters, gradients)
    losses.push((await loss.value.data())[0]!)
    for (const done of [outputs, loss, x, labels, one, outputGradient]) done.dispose()
    if (losses.length === STEPS) break
  }
  const last = group.barrier()
  await last
  const held = model.parameters.reduce((sum, { value }) => sum + value.size, 0)
  // The numbers of collectives count up; the two barriers are not part of a step.
  return { losses, held, collectives: (last.sequence - first - 1) / STEPS }
}

const whole = await train({})
const split = await train(pairs)
if (group.rank === 0) {
  const share = ((100 * split.held) / whole.held).toFixed(1)
  console.log(`a rank holds ${share} % of the parameters`)
  console.log(`${split.collectives} collectives in a step`)
}
const isSame = whole.losses.every((loss, i) => Math.abs(split.losses[i]! - loss) < 1e-5)
prove('two pairs train like the whole network', isSame)
prove('two sums forward and one back are enough', split.collectives === 3)
await group.destroy()
