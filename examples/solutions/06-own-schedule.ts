// Lesson 06, question 3: a schedule of your own, and a proof that it trains.
//
//   npx tsrun --nproc 2 examples/solutions/06-own-schedule.ts
//
// 1F1B with one more forward pass at the start. Rank 0 has always one more micro-batch under way, which it
// computes while a message travels. The proof has three parts: the list can be executed, its losses are
// those of one process, and the simulator finds it faster where messages are slow.

import { isTsrError } from '@tsrun/core'
import { initProcessGroup } from '@tsrun/distributed'
import { batches, loadBackend, mnist, pipeline, SGD, shardedMLP, wholeModel } from '@tsrun/training'
import { parseSchedule, schedule } from '@tsrun/training/planning'
import { prove } from '../lib/prove.ts'

const OWN = `
  0F0 0F1 0F2 0B0 0F3 0B1 0F4 0B2 0F5 0B3 0B4 0B5
  1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3 1F4 1B4 1F5 1B5
`
const own = parseSchedule(OWN)
const usual = schedule('1f1b', { stages: 2, microbatches: 6 })

const group = await initProcessGroup({ engine: 'auto' })
await loadBackend()
const model = shardedMLP({ layers: 4, hidden: 32 })
const options = { optimizer: new SGD({ learningRate: 0.01 }) }
const pipe = pipeline(model, group, { ...options, schedule: own })
const one = wholeModel(model.build(), { optimizer: new SGD({ learningRate: 0.01 }) })

let [steps, difference] = [0, 0]
for (const batch of batches(mnist({ split: 'train' }), { batch: 96 })) {
  const losses = [await pipe.step(batch), await one.step(batch)].map(({ loss }) => loss)
  difference = Math.max(difference, Math.abs(losses[0]! - losses[1]!) / losses[1]!)
  if (++steps === 4) break
}
pipe.dispose()
one.dispose()

if (group.rank === 0) {
  for (const transfer of [0, 1]) {
    const [a, b] = [usual, own].map((plan) => plan.simulate({ transfer }))
    const held = [a, b].map((each) => each!.ranks[0]!.peakInFlight)
    console.log(`messages that take ${transfer}: 1F1B ${a!.makespan}, own ${b!.makespan}`)
    console.log(`rank 0 holds ${held.join(' and ')} micro-batches`)
    if (transfer > 0) prove('it hides messages', b!.makespan < a!.makespan)
  }
  try {
    parseSchedule(OWN.replace('1F0 1B0', '1B0 1F0'))
  } catch (error) {
    if (!isTsrError(error)) throw error
    console.log(`two actions exchanged: ${error.message}`)
  }
}
prove('it trains like one process', difference < 1e-5)
await group.destroy()
