// Lesson 02, questions 2 and 3: a network in three parts, and a gradient that is not handed back.
//
//   npx tsx examples/solutions/02-parts.ts
//
// A part in the middle does what both parts of the lesson do: like part B it needs the gradient of its
// input, like part A it starts its backward pass from a message. So one loop serves any number of parts.

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
  type Tensor,
} from '@tsrun/training'
import { prove } from '../lib/prove.ts'

const [ROWS, WIDTH, STEPS] = [64, 32, 8]
const network = shardedMLP({ layers: 6, hidden: WIDTH })

/**
 * Trains the network on one batch, in parts that begin at the layers of `cuts`. Returns the loss of each
 * step, and how many numbers the parts have exchanged in each.
 *
 * @param isHandedBack - whether a part sends the gradient of its input to the part before it
 */
function train(cuts: readonly number[], isHandedBack = true): { losses: number[]; sent: number } {
  const parts = cuts.map((from, i) => network.slice(from, cuts[i + 1] ?? network.layers))
  const optimizer = new SGD({ learningRate: 0.01 })
  const [batch] = batches(mnist({ split: 'train' }), { batch: ROWS })
  const losses: number[] = []
  let sent = 0
  /** A message: the values leave one part as plain numbers. */
  const copy = (tensor: Tensor): Tensor => {
    sent += tensor.size
    return tf.tensor(tensor.dataSync().slice(), tensor.shape)
  }

  for (let step = 0; step < STEPS; step++) {
    const [labels, one] = [batch!.labels(), tf.scalar(1)]
    let input = batch!.inputs()
    const passes = parts.map((part, i) => {
      const own = input
      const output = recordModule(part, own, { needsInputGradient: i > 0 })
      if (i < parts.length - 1) input = copy(output.value)
      return { part, own, output }
    })
    const loss = recordLoss(crossEntropy, passes.at(-1)!.output.value, labels)
    losses.push(loss.value.dataSync()[0]!)

    let gradient: Tensor | undefined = loss.backward(one, () => undefined)
    for (const { part, own, output } of passes.reverse()) {
      if (gradient !== undefined) {
        const gradients = new Map<string, Tensor>()
        const inputGradient = output.backward(gradient, sumInto(gradients))
        optimizer.step(part.parameters, gradients)
        gradient.dispose()
        gradient = inputGradient && isHandedBack ? copy(inputGradient) : undefined
        inputGradient?.dispose()
      }
      for (const done of [own, output]) done.dispose()
    }
    for (const done of [labels, one, loss]) done.dispose()
  }
  return { losses, sent: sent / STEPS }
}

await loadBackend()
const runs = {
  'one part': train([0]),
  'three parts': train([0, 2, 4]),
  'nothing back': train([0, 2, 4], false),
}
for (const [name, { losses, sent }] of Object.entries(runs)) {
  const [first, last] = [losses[0]!, losses.at(-1)!].map((loss) => loss.toFixed(4))
  console.log(`${name}: loss ${first!} to ${last!}, ${sent} numbers sent in a step`)
}
const [whole, parts, silent] = Object.values(runs).map(({ losses }) => losses)
const isSame = whole!.every((loss, step) => Math.abs(parts![step]! - loss) / loss < 1e-5)
prove('three parts have the losses of one', isSame)
prove('without gradients, only the first loss is right', silent![0] === whole![0])
prove('but the loss falls all the same', silent!.at(-1)! < silent![0]!)
