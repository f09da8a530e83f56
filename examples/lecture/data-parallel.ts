// The lecture's data parallel program: every rank has all layers, and a share of the rows.
//
//   npx tsrun --nproc 4 examples/lecture/data-parallel.ts [--layers 4] [--width 1024] [--rows 128] [--steps 2]
//
// The loop of the lecture, line by line. The only difference from training in one process is the
// all-reduce of each gradient, between the backward pass and the optimizer. So the losses of the ranks
// differ, because their rows differ, and their parameters stay the same.
//
// The second loop lets `dataParallel` do that: it averages gradients in buckets, if a core is free for it
// while the backward pass still computes those of earlier layers. This is one line before the loop, and
// none for the gradients.
//
// The third loop is one line: `trainer` does all of it.
//
// Read: docs/data-parallel.md#by-hand. Exercises: examples/exercises.md#lecture-data-parallel

import {
  AdamW,
  allReduceTensor,
  dataParallel,
  meanSquaredError,
  record,
  sumInto,
  tf,
  trainer,
  type Parameter,
  type Tensor,
} from '@tsrun/training'
import {
  digestOf,
  divide,
  inputs,
  layer,
  meanSquare,
  parameter,
  printOutcomes,
  show,
  sizeFlags,
  weights,
} from './mlp.ts'
import { readFlags } from '../lib/flags.ts'
import { startJob } from '../lib/job.ts'

const { layers, width, rows, steps, ...job } = readFlags(sizeFlags)
const group = await startJob(job)
const { rank, size } = group
const share = divide('rows', rows, size)

// The slice of the data for this rank. In practice, each rank would load only its own.
const data = tf.slice(inputs(rows, width), [rank * share, 0], [share, width])
const one = tf.scalar(1)

/** All layers, on every rank. */
function makeParameters(): Parameter[] {
  return Array.from({ length: layers }, (_, i) => parameter(i, weights(i, width)))
}

const params = makeParameters()
const optimizer = new AdamW({ learningRate: 1e-3 }) // each rank has its own state
const losses: number[] = []
let activations = await digestOf(data)

for (let step = 0; step < steps; step++) {
  // Forward pass
  const forward = (x: Tensor): Tensor => params.reduce((h, { value }) => layer(h, value), x)
  const outputs = record(forward, data, params, { needsInputGradient: false })
  const loss = record(meanSquare, outputs.value, [], { needsInputGradient: true })

  // Backward pass
  const gradients = new Map<string, Tensor>()
  const outputGradient = loss.backward(one, () => undefined)!
  outputs.backward(outputGradient, sumInto(gradients))

  // Average the gradients over the ranks: the only difference
  for (const { name } of params) {
    const own = gradients.get(name)!
    gradients.set(name, await allReduceTensor(group, own, { op: 'avg' }))
    own.dispose()
  }

  // Update the parameters
  optimizer.step(params, gradients)

  losses.push((await loss.value.data())[0]!)
  activations = await digestOf(outputs.value)
  const digests = await Promise.all(params.map(({ value }) => digestOf(value)))
  console.log(
    `[data_parallel] rank ${rank}: step ${step}, loss ${losses.at(-1)!.toFixed(6)}, activations ` +
      `${show(activations)}, parameters ${digests.map(show).join(', ')}`,
  )
  for (const done of [outputGradient, outputs, loss]) done.dispose()
}

/** The same with `dataParallel`. */
async function withDataParallel(): Promise<Parameter[]> {
  const own = makeParameters()
  const forward = (x: Tensor): Tensor => own.reduce((h, { value }) => layer(h, value), x)
  const replica = await dataParallel({ parameters: own, forward }, group)
  const optimizer = new AdamW({ learningRate: 1e-3 })
  for (let step = 0; step < steps; step++) {
    const outputs = record(forward, data, own, { needsInputGradient: false })
    const loss = record(meanSquare, outputs.value, [], { needsInputGradient: true })
    const outputGradient = loss.backward(one, () => undefined)!
    outputs.backward(outputGradient, replica.onGradient)
    optimizer.step(own, await replica.gradientViews())
    for (const done of [outputGradient, outputs, loss]) done.dispose()
  }
  replica.dispose()
  return own
}

/** The same with `trainer`. The mean square is the mean squared error beside zeros. */
async function withTrainer(): Promise<Parameter[]> {
  const own = makeParameters()
  const forward = (x: Tensor): Tensor => own.reduce((h, { value }) => layer(h, value), x)
  const optimizer = new AdamW({ learningRate: 1e-3 })
  const model = { parameters: own, forward }
  const run = await trainer(model, { mesh: group, optimizer, loss: meanSquaredError })
  const labels = tf.zeros([share, width])
  for (let step = 0; step < steps; step++) await run.step({ inputs: data, labels })
  return own
}

// On webgpu, gradients cannot be read during a backward pass.
const others =
  tf.getBackend() === 'webgpu' ? [] : [...(await withDataParallel()), ...(await withTrainer())]
const parameters = await Promise.all(params.map(({ value }) => digestOf(value)))
const ofOthers = await Promise.all(others.map(({ value }) => digestOf(value)))
const differences = ofOthers.map(({ norm }, i) => Math.abs(norm - parameters[i % layers]!.norm))
const difference = Math.max(0, ...differences)
const everyone = await group.allGatherObject(JSON.stringify(parameters))
const isSame = everyone.every((each) => each === everyone[0])
if (rank === 0) {
  console.log(`The parameters are ${isSame ? '' : 'NOT '}the same on all ranks.`)
  const most = difference.toExponential(1)
  if (others.length > 0)
    console.log(`With dataParallel and trainer, norms differ by at most ${most}.`)
}
await printOutcomes(group, { losses, activations, parameters }, { isSame, difference })
await group.destroy()
