// What the soak trains: data parallel replicas of a pipeline, with a checkpoint every few steps from which
// a restarted job resumes.
//
//   train.mjs <folder> <steps> <milliseconds between steps>
import { createHash } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import { destroyProcessGroup, initProcessGroup } from '@tsrun/distributed'
import { Adam, examples, shardedMLP, trainer } from '@tsrun/training'

/** Examples of a step, of all replicas. They divide those of an epoch. */
const BATCH = 32

const [folder, steps, milliseconds] = process.argv.slice(2)
const { size, rank } = await initProcessGroup()
const mesh = size % 2 === 0 ? { dp: size / 2, pp: 2 } : { dp: size }
const model = shardedMLP({ layers: 4, inputs: 8, hidden: 64, outputs: 4 })
const optimizer = new Adam({ learningRate: 0.001 })
const run = await trainer(model, { optimizer, mesh, microbatches: 4 })
const data = examples({
  inputs: { values: Float32Array.from({ length: 8192 }, (_, i) => Math.sin(i)), shape: [8] },
  labels: Int32Array.from({ length: 1024 }, (_, i) => (i * 7) % 4),
})
/** The examples of all replicas, counted from the beginning or from the checkpoint. */
let seen = 0
const { losses } = await run.fit(data, {
  ...{ batch: BATCH, steps: Number(steps), resume: 'auto' },
  save: { directory: folder, every: 20, keep: 2 },
  callbacks: [
    {
      onStep: async ({ examples: count }) => {
        seen += count
        if (Number(milliseconds) > 0) await pause(Number(milliseconds))
      },
    },
  ],
})
const digest = createHash('sha256')
await run.gathered(() => {
  for (const { name, value } of run.parameters) digest.update(name).update(value.dataSync())
})
const last = losses.slice(-3)
const from = run.steps - losses.length
console.log(
  JSON.stringify({
    rank,
    steps: run.steps,
    from,
    batch: BATCH,
    seen,
    last,
    digest: digest.digest('hex'),
  }),
)
run.dispose()
await destroyProcessGroup()
