// Step 2: the network of step 1 in two parts, cut by hand.
//
//   npx tsx examples/02-manual-split.ts [--steps 50] [--batch 128] [--lr 0.05] [--seed 0]
//
// Part A has layers 0 to 7, part B has layers 8 to 15. They share nothing but two messages per step:
//
//          inputs                          labels
//            |                               |
//         [ part A ] --- activations --> [ part B ] --> loss
//         [ part A ] <--- gradients ---- [ part B ]
//
// A needs neither labels nor the loss. It only has to know how the loss changes with its own output, and
// that is the gradient of B's input. For comparison, the whole network trains on the same batches: the
// split changes where values are computed and not what they are, so the losses have to be the same.

import {
  batches,
  crossEntropy,
  loadBackend,
  mnist,
  recordLoss,
  recordModule,
  SGD,
  shardedMLP,
  sumInto,
  tf,
  type ExampleBatch,
  type Tensor,
} from '@tsrun/training'
import { count, integer, positive, readFlags } from './lib/flags.ts'

const flags = readFlags({
  steps: count(50),
  batch: count(128),
  lr: positive(0.05),
  seed: integer(0),
})
const { steps, batch, seed } = flags

await loadBackend()

// Initial values depend only on the seed and on the name of a parameter ("layers.9.weight"), so a part
// starts with the same values as the whole network has there, without knowing the other part.
const recipe = shardedMLP({ layers: 16, seed })
const whole = recipe.build()
const partA = recipe.slice(0, 8)
const partB = recipe.slice(8, 16)

// Plain SGD, because unlike Adam it shows at once if gradients have the wrong scale.
const learningRate = flags.lr
const optimizers = {
  whole: new SGD({ learningRate }),
  a: new SGD({ learningRate }),
  b: new SGD({ learningRate }),
}

let maxDifference = 0
let loss = 0
let step = 0
for (const examples of batches(mnist({ split: 'train' }), { batch, seed })) {
  loss = stepWhole(examples)
  const splitLoss = stepSplit(examples)
  maxDifference = Math.max(maxDifference, Math.abs(loss - splitLoss))
  step += 1
  if (step % 10 === 0) {
    console.log(`step ${step}/${steps}  whole ${loss.toFixed(6)}  split ${splitLoss.toFixed(6)}`)
  }
  if (step === steps) break
}
console.log(`largest difference of the losses: ${maxDifference}`)
console.log(`result ${JSON.stringify({ maxDifference, loss, steps: step })}`)

/** What step 1 does. */
function stepWhole(examples: ExampleBatch): number {
  const inputs = examples.inputs()
  const outputs = recordModule(whole, inputs, { needsInputGradient: false })
  const { value, gradient } = judge(outputs.value, examples)
  const gradients = new Map<string, Tensor>()
  outputs.backward(gradient, sumInto(gradients))
  optimizers.whole.step(whole.parameters, gradients)
  for (const done of [outputs, inputs, gradient]) done.dispose()
  return value
}

/** The same step in two parts. Between processes, `copy` would be a send and a receive. */
function stepSplit(examples: ExampleBatch): number {
  // Part A, forward: it hands over its activations and keeps the recording for later.
  const inputs = examples.inputs()
  const forwardA = recordModule(partA, inputs, { needsInputGradient: false })
  const activations = copy(forwardA.value)

  // Part B, forward and backward: it also needs the gradient of its *input*, to hand that back.
  const forwardB = recordModule(partB, activations, { needsInputGradient: true })
  const { value, gradient } = judge(forwardB.value, examples)
  const gradientsB = new Map<string, Tensor>()
  const inputGradient = forwardB.backward(gradient, sumInto(gradientsB))!
  const message = copy(inputGradient)
  optimizers.b.step(partB.parameters, gradientsB)

  // Part A, backward: it starts from the message, where B started from the loss.
  const gradientsA = new Map<string, Tensor>()
  forwardA.backward(message, sumInto(gradientsA))
  optimizers.a.step(partA.parameters, gradientsA)

  for (const done of [inputs, forwardA, activations, forwardB, gradient, inputGradient, message]) {
    done.dispose()
  }
  return value
}

/** The loss, and its gradient with respect to the scores. */
function judge(scores: Tensor, examples: ExampleBatch): { value: number; gradient: Tensor } {
  const [labels, one] = [examples.labels(), tf.scalar(1)]
  const loss = recordLoss(crossEntropy, scores, labels)
  const [value] = loss.value.dataSync()
  const gradient = loss.backward(one, () => undefined)!
  for (const done of [loss, labels, one]) done.dispose()
  return { value: value!, gradient }
}

/** The values leave one part as plain numbers and arrive at the other. Nothing else is shared. */
function copy(tensor: Tensor): Tensor {
  return tf.tensor(tensor.dataSync().slice(), tensor.shape)
}
