// Lesson 01, question 3: a gradient that is checked without a backward pass.
//
//   npx tsx examples/solutions/01-check-gradient.ts
//
// Moved by a small h along a direction d of length 1, the loss changes by h times the product of gradient
// and d. Along the gradient itself, that product is its length. Two forward passes measure it:
//
//   (loss(w + h d) - loss(w - h d)) / 2h

import {
  batches,
  crossEntropy,
  disposeModule,
  loadBackend,
  mnist,
  replaceValue,
  shardedMLP,
  tf,
} from '@tsrun/training'
import { addGradients, normOf, type Gradients } from '../lib/gradients.ts'
import { prove } from '../lib/prove.ts'

const H = 0.001

await loadBackend()
const [batch] = batches(mnist({ split: 'train' }), { batch: 64 })
const gradient: Gradients = new Map()
const model = shardedMLP({ layers: 4, hidden: 32 }).build()
addGradients(model, { inputs: batch!.inputs(), labels: batch!.labels() }, 1 / 64, gradient)

/** The loss after a move of all parameters by `distance` along `direction`. */
function lossAt(direction: Gradients, distance: number): number {
  const moved = shardedMLP({ layers: 4, hidden: 32 }).build()
  return tf.tidy(() => {
    for (const parameter of moved.parameters) {
      const step = tf.mul(direction.get(parameter.name)!, distance / normOf(direction))
      replaceValue(parameter, tf.keep(tf.add(parameter.value, step)))
    }
    const [loss] = crossEntropy(moved.forward(batch!.inputs()), batch!.labels()).dataSync()
    disposeModule(moved)
    return loss!
  })
}

/** The length of a gradient, and what two forward passes measure along it. */
function check(claimed: Gradients): { claim: number; measured: number } {
  const measured = (lossAt(claimed, H) - lossAt(claimed, -H)) / (2 * H)
  return { claim: normOf(claimed), measured }
}

const name = 'layers.2.weight'
const right = check(gradient)
const wrong = check(new Map(gradient).set(name, tf.mul(gradient.get(name)!, 2)))
for (const [which, { claim, measured }] of Object.entries({ right, wrong })) {
  console.log(`${which}: length ${claim.toFixed(3)}, measured ${measured.toFixed(3)}`)
}
const error = ({ claim, measured }: typeof right): number => Math.abs(measured / claim - 1)
prove('the backward pass gives the slope of the loss', error(right) < 0.01)
prove('one doubled gradient shows', error(wrong) > 0.05)
