// Step 1: the whole network in one process.
//
//   npx tsx examples/01-monolith.ts [--steps 8] [--batch 2048] [--width 256] [--layers 16] [--seed 0]
//
// 16 linear layers learn to read digits. Nothing is parallel here. Every later lesson trains the same
// network on the same batches, and must reproduce these losses. Note the three parts of a training step,
// because a pipeline will separate them:
//
//   forward    activations pass through the layers to the loss; each layer keeps its input
//   backward   the gradient passes back through the layers, and each computes those of its parameters
//   update     the optimizer moves the parameters against their gradients
//
// More and larger steps show that it learns: --steps 200 --lr 0.01.
//
// Read: docs/training.md#by-hand. Exercises: examples/exercises.md#01-the-monolith

import { setImmediate } from 'node:timers/promises'
import {
  crossEntropy,
  recordLoss,
  recordModule,
  SGD,
  sumInto,
  tf,
  type ExampleBatch,
  type Tensor,
} from '@tsrun/training'
import { batchesOf, courseFlags, endLesson, heldBytes, networkOf } from './lib/course.ts'
import { deviceFlag, readFlags } from './lib/flags.ts'
import { loadShown } from './lib/job.ts'
import { median, printResult } from './lib/output.ts'
import { pollUtilisation } from './lib/utilisation.ts'

const { device, ...course } = readFlags({ ...courseFlags, ...deviceFlag })

await loadShown(0, device)
const model = networkOf(course).build()
const optimizer = new SGD({ learningRate: course.lr })

const losses: number[] = []
const times: number[] = []
const poll = pollUtilisation()
for (const examples of batchesOf(course)) {
  const start = performance.now()
  losses.push(trainStep(examples))
  times.push(performance.now() - start)
  console.log(`step ${losses.length}  loss ${losses.at(-1)!.toFixed(6)}`)
  await setImmediate() // lets the timer poll that shows the utilisation
}
// The first step also compiles, so it does not count.
const milliseconds = median(times.slice(1))
const utilisation = [await poll.stop()]
const bytes = heldBytes(model, course.batch)
endLesson(course, { name: '01 monolith', ranks: 1, losses, milliseconds, utilisation, bytes })
printResult({ loss: losses.at(-1)!, msPerStep: milliseconds })

/** Forward, backward, update. Tensors are not garbage-collected, so this function disposes its own. */
function trainStep(examples: ExampleBatch): number {
  const [inputs, labels, one] = [examples.inputs(), examples.labels(), tf.scalar(1)]

  const outputs = recordModule(model, inputs, { needsInputGradient: false })
  const loss = recordLoss(crossEntropy, outputs.value, labels)
  const [value] = loss.value.dataSync()

  // The backward pass starts from d loss / d loss = 1, and goes through the loss, then the layers.
  const gradients = new Map<string, Tensor>()
  const outputGradient = loss.backward(one, () => undefined)!
  outputs.backward(outputGradient, sumInto(gradients))

  optimizer.step(model.parameters, gradients)

  for (const done of [outputs, loss, inputs, labels, one, outputGradient]) done.dispose()
  return value!
}
