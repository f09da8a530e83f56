// FSDP, question 3: the norm of parameters that no rank has whole.
//
//   npx tsrun --nproc 2 examples/solutions/fsdp-read.ts
//
// With stage 3, a rank has its shards and nothing else between two steps. A read is refused. Inside
// `gathered`, which all ranks call, the parameters are whole.

import { isTsrError } from '@tsrun/core'
import { destroyProcessGroup } from '@tsrun/distributed'
import { Adam, batches, loadBackend, mnist, shardedMLP, tf, trainer } from '@tsrun/training'
import { prove } from '../lib/prove.ts'

await loadBackend()
const model = shardedMLP({ layers: 4, hidden: 32 }).build()
const run = await trainer(model, { optimizer: new Adam(), zero: 3 })
const [batch] = batches(mnist({ split: 'train' }), { batch: 64, share: run.share })
await run.step(batch!)

function normOfParameters(): number {
  const squares = model.parameters.map(({ value }) =>
    tf.tidy(() => tf.sum(tf.square(value)).dataSync()[0]!),
  )
  return Math.sqrt(squares.reduce((sum, square) => sum + square, 0))
}

let code = 'no error'
try {
  normOfParameters()
} catch (error) {
  if (!isTsrError(error)) throw error
  code = error.code
}
const norm = await run.gathered(normOfParameters)
if (run.rank === 0) console.log(`between steps: ${code}\ngathered: ${norm.toFixed(3)}`)
prove('a read between steps is refused', code === 'ERR_TSR_SHARDED')
const norms = await run.layout.world.allGatherObject(norm)
prove(
  'gathered, all ranks have the same parameters',
  norms.every((other) => other === norm),
)
run.dispose()
await destroyProcessGroup()
