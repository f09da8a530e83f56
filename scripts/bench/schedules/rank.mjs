// One stage of the measured pipeline: rank.mjs OUTPUT SETUP, where SETUP is JSON.
import { writeFileSync } from 'node:fs'
import { initProcessGroup } from '@tsrun/distributed'
import * as training from '@tsrun/training'
import { schedule } from '@tsrun/training/planning'

const [output, setup] = /** @type {[string, string]} */ (process.argv.slice(2))
const { schedules, microbatches, layers, hidden, batch: size, steps } = JSON.parse(setup)
await training.loadBackend()
const group = await initProcessGroup()
const mlp = training.shardedMLP({ layers, inputs: hidden, hidden, outputs: hidden })
const model = { layers, slice: equalStage }
const loss = Object.assign(halfSquares, { record: recordHalfSquares })
const runs = schedules.map(
  (/** @type {import('@tsrun/training/planning').ScheduleName} */ name) => {
    const pipe = training.pipeline(model, group, { schedule: name, microbatches, loss })
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

/**
 * Makes the first stage compute its input gradient, so that it costs as much as the others.
 *
 * @param {number} from
 * @param {number} to
 * @returns {import('@tsrun/training').Module}
 */
function equalStage(from, to) {
  const module = mlp.slice(from, to)
  if (from > 0) return module
  return {
    parameters: module.parameters,
    forward: (x) => module.forward(x),
    record: (x) => {
      const recording = training.recordModule(module, x, { needsInputGradient: true })
      const backward = recording.backward.bind(recording)
      const backwardInput = recording.backwardInput?.bind(recording)
      recording.backward = (...pass) => {
        backward(...pass)?.dispose()
        return undefined
      }
      if (backwardInput !== undefined) {
        recording.backwardInput = (dy) => {
          backwardInput(dy)?.dispose()
          return undefined
        }
      }
      return recording
    },
  }
}

/**
 * The loss |y|^2 / 2, which costs almost nothing, so that the last stage costs as much as the others.
 *
 * @param {import('@tsrun/training').Tensor} outputs
 */
function halfSquares(outputs) {
  const { tf } = training
  return tf.mul(tf.sum(tf.square(outputs)), 0.5)
}
/** @param {import('@tsrun/training').Tensor} outputs */
function recordHalfSquares(outputs) {
  const { tf } = training
  const value = tf.tidy(() => halfSquares(outputs))
  return {
    value,
    backward: (/** @type {import('@tsrun/training').Tensor} */ dy) => tf.mul(outputs, dy),
    dispose: () => {
      value.dispose()
    },
  }
}
