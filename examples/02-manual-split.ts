// Step 2: the network of step 1 in two parts, cut by hand.
//
//   npx tsx examples/02-manual-split.ts [--cut 8] [--steps 8] [--batch 2048] [--width 256] [--layers 16]
//
// Part A has layers 0 to 7, part B has layers 8 to 15. First both parts are in one graph: the output of A
// is the input of B, and autograd carries the gradient from B to A. Then the graph is cut. The parts
// share nothing but two messages per step:
//
//          inputs                          labels
//            |                               |
//         [ part A ] --- activations --> [ part B ] --> loss
//         [ part A ] <--- gradients ---- [ part B ]
//
// A needs neither labels nor the loss. It only has to know how the loss changes with its own output, and
// that is the gradient of B's input. The cut changes where values are computed and not what they are, so
// the losses have to be those of step 1.
//
// Read: docs/models.md#in-slices. Exercises: examples/exercises.md#02-the-manual-split

import { setImmediate } from 'node:timers/promises'
import {
  crossEntropy,
  record,
  recordLoss,
  recordModule,
  SGD,
  sumInto,
  tf,
  type ExampleBatch,
  type Module,
  type Tensor,
} from '@tsrun/training'
import {
  batchesOf,
  courseFlags,
  differenceOf,
  endLesson,
  heldBytes,
  networkOf,
} from './lib/course.ts'
import { count, deviceFlag, endWith, readFlags } from './lib/flags.ts'
import { loadShown } from './lib/job.ts'
import { median, printResult } from './lib/output.ts'
import { pollUtilisation } from './lib/utilisation.ts'

const { cut, device, ...course } = readFlags({ cut: count(8), ...courseFlags, ...deviceFlag })
if (cut >= course.layers) endWith(`--cut ${cut} leaves no layer for part B`)

await loadShown(0, device)

// Initial values depend only on the seed and on the name of a parameter ("layers.9.weight"), so a part
// starts with the same values as the whole network has there, without knowing the other part.
const network = networkOf(course)
const joined = partsOf()
const apart = partsOf()
const losses = { joined: [] as number[], apart: [] as number[] }
const times: number[] = []

const poll = pollUtilisation()
for (const examples of batchesOf(course)) {
  losses.joined.push(stepInOneGraph(examples))
  const start = performance.now()
  losses.apart.push(stepApart(examples))
  times.push(performance.now() - start)
  const [one, two] = [losses.joined, losses.apart].map((each) => each.at(-1)!.toFixed(6))
  console.log(`step ${times.length}  one graph ${one!}  cut ${two!}`)
  await setImmediate() // lets the timer poll that shows the utilisation
}
const maxDifference = differenceOf({ losses: losses.joined }, { losses: losses.apart })
const milliseconds = median(times.slice(1))
const utilisation = [await poll.stop()]
const bytes = heldBytes(apart.a.module, course.batch) + heldBytes(apart.b.module, course.batch)
const figures = { losses: losses.apart, milliseconds, utilisation, bytes }
endLesson(course, { name: '02 split', ranks: 1, ...figures })
printResult({ loss: losses.apart.at(-1)!, maxDifference, msPerStep: milliseconds })

interface Part {
  readonly module: Module
  readonly optimizer: SGD
}

function partsOf(): { a: Part; b: Part } {
  // Plain SGD, because unlike Adam it shows at once if gradients have the wrong scale.
  const part = (from: number, to: number): Part => ({
    module: network.slice(from, to),
    optimizer: new SGD({ learningRate: course.lr }),
  })
  return { a: part(0, cut), b: part(cut, course.layers) }
}

/** Both parts in one graph. Nobody has to think of the cut. */
function stepInOneGraph(examples: ExampleBatch): number {
  const { a, b } = joined
  const inputs = examples.inputs()
  const parameters = [...a.module.parameters, ...b.module.parameters]
  const forward = (x: Tensor): Tensor => b.module.forward(a.module.forward(x))
  const outputs = record(forward, inputs, parameters, { needsInputGradient: false })
  const { value, gradient } = judge(outputs.value, examples)
  const gradients = new Map<string, Tensor>()
  outputs.backward(gradient, sumInto(gradients))
  // An optimizer takes the gradients of its parameters, and disposes them.
  for (const { module, optimizer } of [a, b]) {
    const own = module.parameters.map(({ name }) => [name, gradients.get(name)!] as const)
    optimizer.step(module.parameters, new Map(own))
  }
  for (const done of [outputs, inputs, gradient]) done.dispose()
  return value
}

/** The same step in two parts. Between processes, `copy` would be a send and a receive. */
function stepApart(examples: ExampleBatch): number {
  const { a, b } = apart
  // Part A, forward: it hands over its activations and keeps the recording for later.
  const inputs = examples.inputs()
  const forwardA = recordModule(a.module, inputs, { needsInputGradient: false })
  const activations = copy(forwardA.value)

  // Part B, forward and backward: it also needs the gradient of its *input*, to hand that back.
  const forwardB = recordModule(b.module, activations, { needsInputGradient: true })
  const { value, gradient } = judge(forwardB.value, examples)
  const gradientsB = new Map<string, Tensor>()
  const inputGradient = forwardB.backward(gradient, sumInto(gradientsB))!
  const message = copy(inputGradient)
  b.optimizer.step(b.module.parameters, gradientsB)

  // Part A, backward: it starts from the message, where B started from the loss.
  const gradientsA = new Map<string, Tensor>()
  forwardA.backward(message, sumInto(gradientsA))
  a.optimizer.step(a.module.parameters, gradientsA)

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
