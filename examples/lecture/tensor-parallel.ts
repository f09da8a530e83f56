// The lecture's tensor parallel program, with the backward pass that it leaves as homework.
//
//   npx tsrun --nproc 4 examples/lecture/tensor-parallel.ts [--layers 4] [--width 1024] [--rows 128] [--steps 2]
//
// Every rank has some columns of each weight matrix, and all rows of the data:
//
//   forward    h = gelu(x W)       [rows, width / n], the columns of this rank
//              x = all-gather(h)   [rows, width], the columns of all ranks side by side
//
//   backward   dh = reduce-scatter(dx)   the columns of this rank, summed over the ranks
//              dx, dW from dh            as in one process
//
// Why a sum? Each rank computes its dx from its own columns of the next layer only. Every column of x
// has contributed to the columns of all ranks, so its gradient is the sum of their parts. Taking this
// rank's columns of its own dx instead would be wrong, without an error. Only after the last layer the
// gradient is whole: all ranks compute the same loss from all columns.
//
// Read: docs/tensor-parallel.md#in-segments. Exercises: examples/exercises.md#lecture-tensor-parallel

import {
  AdamW,
  allGatherTensor,
  record,
  reduceScatterTensor,
  sumInto,
  tf,
  type Recording,
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
const columns = divide('width', width, size)

const data = inputs(rows, width)
const one = tf.scalar(1)
const params = Array.from({ length: layers }, (_, i) => parameter(i, ownColumns(weights(i, width))))
const optimizer = new AdamW({ learningRate: 1e-3 }) // of the columns of this rank
const losses: number[] = []
let activations = await digestOf(data)

for (let step = 0; step < steps; step++) {
  // Forward pass
  const parts: Recording[] = []
  const gathered: Tensor[] = []
  let x = data
  for (const [i, param] of params.entries()) {
    const forward = (input: Tensor): Tensor => layer(input, param.value)
    const part = record(forward, x, [param], { needsInputGradient: i > 0 })
    x = await allGatherTensor(group, part.value, { axis: 1 })
    parts.push(part)
    gathered.push(x)
  }
  const loss = record(meanSquare, x, [], { needsInputGradient: true })

  // Backward pass
  const gradients = new Map<string, Tensor>()
  let dx = loss.backward(one, () => undefined)
  for (let i = layers - 1; i >= 0; i--) {
    const dh =
      i === layers - 1 ? ownColumns(dx!) : await reduceScatterTensor(group, dx!, { axis: 1 })
    dx!.dispose()
    dx = parts[i]!.backward(dh, sumInto(gradients))
    dh.dispose()
  }

  // Update the parameters. Nothing has to be averaged: each rank has the whole gradient of its columns.
  optimizer.step(params, gradients)

  losses.push((await loss.value.data())[0]!)
  activations = await digestOf(x)
  const digests = await Promise.all(params.map(({ value }) => digestOf(value)))
  console.log(
    `[tensor_parallel] rank ${rank}: step ${step}, loss ${losses.at(-1)!.toFixed(6)}, activations ` +
      `${show(activations)}, parameters ${digests.map(show).join(', ')}`,
  )
  for (const done of [...parts, ...gathered, loss]) done.dispose()
}

const parameters = await Promise.all(params.map(({ value }) => digestOf(value)))
await printOutcomes(group, { losses, activations, parameters })
await group.destroy()

/** The columns of this rank. */
function ownColumns(whole: Tensor): Tensor {
  return tf.slice(whole, [0, rank * columns], [whole.shape[0], columns])
}
