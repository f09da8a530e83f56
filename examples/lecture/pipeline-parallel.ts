// The lecture's pipeline parallel program, with the backward pass that it leaves as homework.
//
//   npx tsrun --nproc 2 examples/lecture/pipeline-parallel.ts [--layers 4] [--width 1024] [--rows 128] [--steps 2]
//       [--microbatches 4] [--messages]
//
// Every rank has some of the layers. The rows are cut into micro-batches, so that the ranks can work at the
// same time (GPipe): all forward passes, then all backward passes.
//
//   forward    the input comes from the data or from the previous rank; the output goes to the next one
//   backward   the gradient of the output comes from the loss or from the next rank; that of the input
//              goes to the previous one
//
// A rank does not wait until its messages are sent before the end of the step.
// `--messages` prints them: `sending [32, 1024] to rank 1`.
//
// Read: docs/distributed.md#tensors. Exercises: examples/exercises.md#lecture-pipeline-parallel

import {
  AdamW,
  record,
  recvTensor,
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
import { count, readFlags } from '../lib/flags.ts'
import { startJob } from '../lib/job.ts'
import { messagesFlag, sender } from '../lib/messages.ts'

const flags = readFlags({ ...sizeFlags, microbatches: count(4), messages: messagesFlag })
const { layers, width, rows, steps, microbatches } = flags
const group = await startJob(flags)
const send = sender(group, flags.messages)
const { rank, size } = group
const ownLayers = divide('layers', layers, size)
const shape = [divide('rows', rows, microbatches), width] // of the activations of a micro-batch
const [isFirst, isLast] = [rank === 0, rank === size - 1]

const data = inputs(rows, width)
const one = tf.scalar(1)
const params = Array.from({ length: ownLayers }, (_, i) => {
  const index = rank * ownLayers + i
  return parameter(index, weights(index, width))
})
const optimizer = new AdamW({ learningRate: 1e-3 }) // of the layers of this rank
const losses: number[] = []
let activations = await digestOf(data)

for (let step = 0; step < steps; step++) {
  const sends: Promise<void>[] = []
  const received: Tensor[] = []
  const outputs: Recording[] = []
  const outputLosses: Recording[] = []
  const gradients = new Map<string, Tensor>()

  // Forward passes
  const forward = (x: Tensor): Tensor => params.reduce((h, { value }) => layer(h, value), x)
  for (let m = 0; m < microbatches; m++) {
    const input = isFirst
      ? tf.slice(data, [m * shape[0]!, 0], shape)
      : await recvTensor(group, shape, group.previous)
    const output = record(forward, input, params, { needsInputGradient: !isFirst })
    if (!isLast) sends.push(send(output.value, group.next))
    received.push(input)
    outputs.push(output)
  }

  // Backward passes. The gradients of the micro-batches are added up.
  for (const output of outputs) {
    let outputGradient: Tensor
    if (isLast) {
      // The mean over all rows is the sum of the means of the micro-batches, each divided by their number.
      const shareOfLoss = (y: Tensor): Tensor => tf.div(meanSquare(y), microbatches)
      const loss = record(shareOfLoss, output.value, [], { needsInputGradient: true })
      outputGradient = loss.backward(one, () => undefined)!
      outputLosses.push(loss)
    } else {
      outputGradient = await recvTensor(group, shape, group.next)
    }
    const inputGradient = output.backward(outputGradient, sumInto(gradients))
    if (inputGradient !== undefined) {
      sends.push(send(inputGradient, group.previous))
      inputGradient.dispose()
    }
    outputGradient.dispose()
  }
  await Promise.all(sends)

  // Update the parameters
  optimizer.step(params, gradients)

  const whole = tf.concat(outputs.map(({ value }) => value))
  activations = await digestOf(whole)
  if (isLast) {
    const parts = await Promise.all(outputLosses.map(({ value }) => value.data()))
    losses.push(parts.reduce((sum, [part]) => sum + part!, 0))
  }
  const digests = await Promise.all(params.map(({ value }) => digestOf(value)))
  console.log(
    `[pipeline] rank ${rank}: step ${step}, ${isLast ? `loss ${losses.at(-1)!.toFixed(6)}, ` : ''}` +
      `activations ${show(activations)}, parameters ${digests.map(show).join(', ')}`,
  )
  for (const done of [whole, ...received, ...outputs, ...outputLosses]) done.dispose()
}

const parameters = await Promise.all(params.map(({ value }) => digestOf(value)))
await printOutcomes(group, { losses, activations, parameters })
await group.destroy()
