// From scratch, part 2 of 3: the network, and its derivatives written out.
//
//   y = relu(x W + b)        z = x W + b
//
// The backward pass of a layer gets dy, the derivative of the loss with respect to y, and gives back dx:
//
//   dz = dy where y > 0, else 0        dW = transpose(x) dz        db = the sum of dz over the rows
//   dx = dz transpose(W)
//
// So a layer must keep x and y of each micro-batch from its forward pass to its backward pass. That is the
// memory that the schedules differ in.

import { generator, splitLayers, tf, uniform, type Tensor } from '@tsrun/training'
import { costsOf } from '../lib/course.ts'

export const [LAYERS, WIDTH] = [16, 256]
const [INPUTS, CLASSES] = [784, 10]

class Layer {
  #weight: Tensor
  #bias: Tensor
  readonly #isFirst: boolean
  readonly #isLast: boolean
  readonly #kept = new Map<number, readonly [x: Tensor, y: Tensor]>()
  #sums: readonly [dW: Tensor, db: Tensor] | undefined

  constructor(index: number) {
    this.#isFirst = index === 0
    this.#isLast = index === LAYERS - 1
    const [inputs, outputs] = [this.#isFirst ? INPUTS : WIDTH, this.#isLast ? CLASSES : WIDTH]
    // The numbers depend on the name, so that each stage draws those of the whole network.
    const next = generator(`layers.${index}.weight`, 0)
    const draw = () => (2 * uniform(next) - 1) * Math.sqrt(6 / inputs)
    const values = Float32Array.from({ length: inputs * outputs }, draw)
    this.#weight = tf.tensor(values, [inputs, outputs])
    this.#bias = tf.zeros([outputs])
  }

  // x [rows, inputs]
  forward(microbatch: number, x: Tensor): Tensor {
    const y = tf.tidy(() => {
      const z = tf.add(tf.matMul(x, this.#weight), this.#bias)
      return this.#isLast ? z : tf.relu(z)
    })
    this.#kept.set(microbatch, [x, y])
    return y
  }

  // Returns dx, unless x are the images. dy [rows, outputs] and y are disposed here.
  backward(microbatch: number, dy: Tensor): Tensor | undefined {
    const [x, y] = this.#kept.get(microbatch)!
    this.#kept.delete(microbatch)
    const [dW, db, dx] = tf.tidy((): [Tensor, Tensor, Tensor?] => {
      const dz = this.#isLast ? dy : tf.mul(dy, tf.step(y))
      const own = [tf.matMul(x, dz, true), tf.sum(dz, 0)] as const
      const [dW, db] = this.#sums ? own.map((d, i) => tf.add(d, this.#sums![i]!)) : own
      return this.#isFirst ? [dW, db] : [dW, db, tf.matMul(dz, this.#weight, false, true)]
    })
    tf.dispose([y, dy, ...(this.#sums ?? [])])
    this.#sums = [dW, db]
    return dx
  }

  /** Moves the parameters against their gradients, and begins new sums. */
  step(rate: number): void {
    const [dW, db] = this.#sums!
    const moved = (value: Tensor, d: Tensor) => tf.tidy(() => tf.sub(value, tf.mul(d, rate)))
    const former = [this.#weight, this.#bias, dW, db]
    this.#weight = moved(this.#weight, dW)
    this.#bias = moved(this.#bias, db)
    tf.dispose(former)
    this.#sums = undefined
  }
}

/** The layers of one stage. Layer 0 is as much work as two others, so stages are cut by their work. */
export class ShardedMLP {
  readonly #layers: readonly Layer[]
  /** `0 to 6` */
  readonly span: string
  /** The inputs of micro-batches between their forward and their backward pass. */
  readonly inFlight = new Map<number, Tensor>()

  constructor(stage: number, stages: number) {
    const costs = costsOf({ layers: LAYERS, width: WIDTH })
    const { from, to } = splitLayers(LAYERS, stages, { costs })[stage]!
    this.span = `${from} to ${to - 1}`
    this.#layers = Array.from({ length: to - from }, (_, i) => new Layer(from + i))
  }

  forward(microbatch: number, x: Tensor): Tensor {
    this.inFlight.set(microbatch, x)
    return this.#layers.reduce((h, layer) => layer.forward(microbatch, h), x)
  }

  /** Returns dx; undefined on the first stage. */
  backward(microbatch: number, dy: Tensor): Tensor | undefined {
    let dx: Tensor | undefined = dy
    for (const layer of this.#layers.toReversed()) dx = layer.backward(microbatch, dx!)
    this.inFlight.get(microbatch)!.dispose()
    this.inFlight.delete(microbatch)
    return dx
  }

  step(rate: number): void {
    for (const layer of this.#layers) layer.step(rate)
  }
}

// The sum of the cross-entropy over the rows, and its derivative: the probabilities, less 1 for the right
// class, divided by the rows of the whole batch. The labels are disposed here.
export function judge(scores: Tensor, labels: Tensor, batch: number): { loss: number; d: Tensor } {
  const [loss, d] = tf.tidy(() => {
    const right = tf.oneHot(tf.cast(labels, 'int32'), CLASSES)
    const wrong = tf.sub(tf.softmax(scores), right)
    const logs = tf.mul(tf.logSoftmax(scores), right)
    return [tf.neg(tf.sum(logs)), tf.div(wrong, batch)] as [Tensor, Tensor]
  })
  const [value] = loss.dataSync()
  tf.dispose([loss, labels])
  return { loss: value!, d }
}
