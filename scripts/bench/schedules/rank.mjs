// One stage of the measured pipeline: rank.mjs OUTPUT SETUP, where SETUP is JSON.
import { writeFileSync } from 'node:fs'
import { initProcessGroup } from '@tsrun/distributed'
import * as training from '@tsrun/training'
import { schedule } from '@tsrun/training/planning'

const [output, setup] = /** @type {[string, string]} */ (process.argv.slice(2))
const { schedules, microbatches, layers, hidden, batch: size, steps } = JSON.parse(setup)
await training.loadBackend()
const group = await initProcessGroup()
const model = training.shardedMLP({ layers, inputs: hidden, hidden, outputs: hidden })
const runs = schedules.map(
  (/** @type {import('@tsrun/training/planning').ScheduleName} */ name) => {
    const pipe = training.pipeline(model, group, { schedule: name, microbatches })
    return { name, pipe, meter: new training.StepMeter(pipe.recorder) }
  },
)
const batch = {
  size,
  inputs: () => training.tf.ones([size, hidden]),
  labels: () => training.tf.zeros([size], 'int32'),
}
// The first step warms up and is not measured.
for (let step = 0; step <= steps; step++) {
  for (const run of runs) {
    if (step === 1) run.meter = new training.StepMeter(run.pipe.recorder)
    await group.barrier()
    const { gradients } = await run.meter.time(() => run.pipe.forwardBackward(batch))
    training.tf.dispose([...gradients.values()])
  }
}
const measured = []
for (const { name, pipe, meter } of runs) {
  const stages = group.size * pipe.chunks.length
  const parts = Math.min(microbatches, size)
  const plan = schedule(name, { stages, ranks: group.size, microbatches: parts })
  const spans = (await group.allGatherObject(meter.lastSpans)).flat()
  const transfer = training.messageTime(spans)
  const report = training.pipelineReport(await meter.gather(group), plan, { transfer })
  measured.push({ schedule: name, ...report })
}
if (group.rank === 0) writeFileSync(output, JSON.stringify(measured))
for (const { pipe } of runs) pipe.dispose()
await group.destroy()
