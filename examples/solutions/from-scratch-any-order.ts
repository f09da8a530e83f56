// From scratch, question 3: the passes of a step in any order that is possible.
//
//   npx tsx examples/solutions/from-scratch-any-order.ts
//
// Four stages in one process. Of all passes whose input is there, a random one runs next, until each
// micro-batch has passed all stages forward and backward.

import { batches, generator, loadBackend, mnist, tf, uniform, type Tensor } from '@tsrun/training'
import { judge, ShardedMLP } from '../from-scratch/model.ts'
import { prove } from '../lib/prove.ts'

const [STAGES, COUNT, ROWS, STEPS, RATE] = [4, 4, 16, 3, 0.0005]

/** A message: the values leave a stage as plain numbers. */
const copy = (tensor: Tensor): Tensor => tf.tensor(tensor.dataSync().slice(), tensor.shape)

/** Returns dx, the gradient that the stage before waits for. */
const backward = (part: ShardedMLP, m: number, dy: Tensor): Tensor | undefined =>
  part.backward(m, dy)

/** The losses of some steps of `count` micro-batches, in an order that depends on the seed. */
function train(stages: number, count: number, seed: number): { losses: number[]; order: string } {
  const parts = Array.from({ length: stages }, (_, i) => new ShardedMLP(i, stages))
  const next = generator('order', seed)
  const losses: number[] = []
  const order: string[] = []
  for (const batch of batches(mnist({ split: 'train' }), { batch: COUNT * ROWS })) {
    const [inputs, labels] = [batch.inputs(), batch.labels()]
    const rows = batch.size / count
    let sum = 0
    /** The passes whose input is there. */
    const ready = Array.from({ length: count }, (_, m) => {
      return { kind: 'F', stage: 0, m, input: tf.slice(inputs, m * rows, rows) }
    })
    while (ready.length > 0) {
      const [pass] = ready.splice(Math.floor(uniform(next) * ready.length), 1)
      const { kind, stage, m, input } = pass!
      if (losses.length === 0) order.push(`${stage}${kind}${m}`)
      if (kind === 'B') {
        const dx = backward(parts[stage]!, m, input)
        if (stage > 0) ready.push({ kind, stage: stage - 1, m, input: copy(dx!) })
        dx?.dispose()
        continue
      }
      const y = parts[stage]!.forward(m, input)
      if (stage < stages - 1) ready.push({ kind, stage: stage + 1, m, input: copy(y) })
      else {
        const { loss, d } = judge(y, tf.slice(labels, m * rows, rows), batch.size)
        sum += loss
        ready.push({ kind: 'B', stage, m, input: d })
      }
    }
    for (const part of parts) part.step(RATE)
    tf.dispose([inputs, labels])
    losses.push(sum / batch.size)
    if (losses.length === STEPS) break
  }
  return { losses, order: order.join(' ') }
}

await loadBackend()
const whole = train(1, 1, 0)
console.log(`one stage: loss ${whole.losses.map((loss) => loss.toFixed(5)).join(' ')}`)
const runs = [1, 2, 3].map((seed) => train(STAGES, COUNT, seed))
for (const { losses, order } of runs) {
  console.log(`${order.slice(0, 19)} ...: loss ${losses.map((loss) => loss.toFixed(5)).join(' ')}`)
}
prove('the orders differ', new Set(runs.map(({ order }) => order)).size === runs.length)
const differences = runs.flatMap(({ losses }) =>
  losses.map((loss, step) => Math.abs(loss / whole.losses[step]! - 1)),
)
prove('all orders have the losses of one stage', Math.max(...differences) < 1e-5)
