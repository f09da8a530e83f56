import {
  Adam,
  crossEntropy,
  loadBackend,
  record,
  recordLoss,
  recordModule,
  SGD,
  shardedMLP,
  tf,
  type Module,
  type Parameter,
  type Tensor,
} from '@tsrun/training'

/** What a backend computes, to be compared with others. */
export interface Trained {
  readonly losses: number[]
  /** Number of tensors after ten steps, and after all. */
  readonly tensors: readonly [number, number]
  /** Of the first step, by parameter: from the layers' own passes and from the tape. */
  readonly gradients: Record<'own' | 'taped', Record<string, number[]>>
}

/** How much a backend holds after some steps, and after many more. */
export interface Held {
  readonly early: Record<string, number>
  readonly late: Record<string, number>
}

/** Trains a small network on the backend that TSRUN_BACKEND names. */
export async function train(steps: number): Promise<Trained> {
  await loadBackend()
  const model = shardedMLP({ layers: 3, inputs: 12, hidden: 16, outputs: 4, seed: 1 }).build()
  const optimizer = new SGD({ learningRate: 0.1, momentum: 0.9 })
  const losses: number[] = []
  const tensors: number[] = []
  const taped = await tapedGradients(model)
  let own: Record<string, number[]> | undefined
  for (let step = 0; step < steps; step++) {
    const { loss, gradients } = pass(model, step)
    losses.push((await loss.data())[0]!)
    own ??= await valuesOf(gradients)
    loss.dispose()
    optimizer.step(model.parameters, gradients)
    tensors.push(tf.memory().numTensors)
  }
  // Left to the garbage collector, the state would be freed while hold() counts.
  optimizer.dispose()
  return { losses, tensors: [tensors[9]!, tensors.at(-1)!], gradients: { own: own!, taped } }
}

/**
 * Counts tensors and memory over many steps.
 *
 * @param what - `scale` is so small that software drivers keep up
 */
export async function hold(steps: number, what: 'mlp' | 'scale'): Promise<Held> {
  await loadBackend()
  const shape = { layers: 3, inputs: 12, hidden: 16, outputs: 12, seed: 1 }
  const [model, optimizer] =
    what === 'mlp'
      ? [shardedMLP(shape).build(), new Adam({ learningRate: 0.01 })]
      : [new Scale(), new SGD({ learningRate: 0.1, momentum: 0.9 })]
  let early: Record<string, number> | undefined
  for (let step = 1; step <= steps; step++) {
    const { loss, gradients } = pass(model, step)
    optimizer.step(model.parameters, gradients)
    // A device that is never awaited falls behind.
    if (step % 50 === 0) await loss.data()
    loss.dispose()
    if (step === steps / 5) early = memory()
  }
  const late = memory()
  optimizer.dispose()
  return { early: early!, late }
}

/** Each class has one input, and its score is that times a weight. */
class Scale implements Module {
  readonly weight: Parameter = { name: 'weight', shape: [12], value: tf.keep(tf.ones([12])) }
  readonly parameters = [this.weight]

  forward(x: Tensor): Tensor {
    return tf.mul(x, this.weight.value)
  }
}

function memory(): Record<string, number> {
  const numbers = Object.entries(tf.memory()).filter(([, value]) => typeof value === 'number')
  return Object.fromEntries(numbers) as Record<string, number>
}

function pass(model: Module, step: number): { loss: Tensor; gradients: Map<string, Tensor> } {
  const [x, labels] = batch(step)
  const outputs = recordModule(model, x, { needsInputGradient: false })
  const loss = recordLoss(crossEntropy, outputs.value, labels)
  const one = tf.scalar(1)
  const dy = loss.backward(one, () => undefined)!
  const gradients = new Map<string, Tensor>()
  outputs.backward(dy, ({ name }, gradient) => gradients.set(name, gradient))
  const value = tf.clone(loss.value)
  loss.dispose()
  outputs.dispose()
  tf.dispose([x, labels, one, dy])
  return { loss: value, gradients }
}

/** Of a loss that goes through many kinds of operations. */
async function tapedGradients(model: Module): Promise<Record<string, number[]>> {
  const [x, labels] = batch(0)
  const forward = (input: Tensor): Tensor => {
    const logits = model.forward(input)
    const mean = tf.mean(logits, 1, true)
    const spread = tf.sqrt(tf.add(tf.mean(tf.square(tf.sub(logits, mean)), 1, true), 0.1))
    const normal = tf.div(tf.sub(logits, mean), spread)
    const gates = tf.sigmoid(tf.slice(normal, [0, 0], [-1, 2]))
    const scores = tf.concat([tf.mul(gates, tf.tanh(tf.slice(normal, [0, 2], [-1, 2]))), gates], 1)
    return tf.add(crossEntropy(scores, labels), tf.mean(tf.abs(tf.softmax(logits))))
  }
  const recording = record(forward, x, model.parameters, { needsInputGradient: false })
  const one = tf.scalar(1)
  const gradients = new Map<string, Tensor>()
  recording.backward(one, ({ name }, gradient) => gradients.set(name, gradient))
  const values = await valuesOf(gradients)
  recording.dispose()
  tf.dispose([x, labels, one, ...gradients.values()])
  return values
}

async function valuesOf(tensors: ReadonlyMap<string, Tensor>): Promise<Record<string, number[]>> {
  const values = Array.from(tensors, async ([name, tensor]) => [name, [...(await tensor.data())]])
  return Object.fromEntries(await Promise.all(values)) as Record<string, number[]>
}

/** The label is the largest of the first four inputs. */
function batch(step: number): [inputs: Tensor, labels: Tensor] {
  const rows = Array.from({ length: 24 }, (_, row) =>
    Array.from({ length: 12 }, (__, k) => Math.sin(1 + row * 12.9 + k * 78.2 + (step % 4) * 37.7)),
  )
  const labels = rows.map((row) => row.slice(0, 4).indexOf(Math.max(...row.slice(0, 4))))
  return [tf.tensor2d(rows), tf.tensor1d(labels, 'int32')]
}
