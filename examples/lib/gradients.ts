import {
  recordLoss,
  recordModule,
  summedCrossEntropy,
  sumInto,
  tf,
  type Module,
  type Tensor,
} from '@tsrun/training'

/** Gradients by the name of their parameter. */
export type Gradients = Map<string, Tensor>

/**
 * Runs a forward and a backward pass of the sum of the cross-entropies. Adds its gradient, times `scale`,
 * to `gradients`.
 *
 * @param inputs - [rows, features]; disposed here
 * @param labels - [rows]; disposed here
 * @returns the sum of the losses
 */
export function addGradients(
  model: Module,
  { inputs, labels }: { inputs: Tensor; labels: Tensor },
  scale: number,
  gradients: Gradients,
): number {
  const outputs = recordModule(model, inputs, { needsInputGradient: false })
  const loss = recordLoss(summedCrossEntropy, outputs.value, labels)
  const [sum] = loss.value.dataSync()
  const start = tf.scalar(scale)
  const outputGradient = loss.backward(start, () => undefined)!
  outputs.backward(outputGradient, sumInto(gradients))
  for (const done of [outputs, loss, inputs, labels, start, outputGradient]) done.dispose()
  return sum!
}

/** The length of a gradient as a vector of all its numbers. */
export function normOf(gradients: Gradients): number {
  let squares = 0
  for (const gradient of gradients.values()) {
    for (const value of gradient.dataSync()) squares += value * value
  }
  return Math.sqrt(squares)
}

/** The length of the difference of two gradients, as a share of that of the first. */
export function differenceOf(first: Gradients, second: Gradients): number {
  const difference: Gradients = new Map()
  for (const [name, gradient] of first) difference.set(name, tf.sub(gradient, second.get(name)!))
  const share = normOf(difference) / normOf(first)
  tf.dispose([...difference.values()])
  return share
}
