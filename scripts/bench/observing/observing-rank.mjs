// One rank: observing-rank.mjs OUTPUT STEPS. Trains a pipeline, and writes the median time of a step.
import { writeFileSync } from 'node:fs'
import { initProcessGroup } from '@tsrun/distributed'
import { loadBackend, SGD, shardedMLP, tf, trainer } from '@tsrun/training'
import { median } from '../figures.mjs'

const [output = '', count = ''] = process.argv.slice(2)
const WARM_UPS = 100
const [LAYERS, UNITS, BATCH] = [16, 128, 128]

await loadBackend('wasm')
const group = await initProcessGroup()
const sizes = { layers: Math.max(LAYERS, group.size), inputs: UNITS, hidden: UNITS, outputs: UNITS }
const run = await trainer(shardedMLP(sizes), {
  mesh: { pp: group.size },
  optimizer: new SGD({ learningRate: 1e-3 }),
  microbatches: 8,
})
const inputs = tf.randomNormal([BATCH, UNITS], 0, 1, 'float32', 1)
const labels = tf.randomUniform([BATCH], 0, UNITS, 'int32', 2)
const times = []
for (let step = 0; step < WARM_UPS + Number(count); step++) {
  const start = performance.now()
  await run.step({ inputs, labels })
  if (step >= WARM_UPS) times.push(performance.now() - start)
}
if (group.rank === 0) writeFileSync(output, String(median(times)))
run.dispose()
await group.destroy()
