// Training in one process, which every layout has to reproduce.
import { clipGradients, crossEntropy, record, SGD, tf } from '@tsrun/training'

/**
 * @typedef {object} StepResult
 * @property {number} loss
 * @property {number} norm - of the gradients, before they are clipped
 * @property {ReadonlyMap<string, Float32Array>} gradients - before they are clipped
 * @property {ReadonlyMap<string, Float32Array>} parameters - after the step
 */

export const MAX_NORM = 0.5

export function makeOptimizer() {
  return new SGD({ learningRate: 0.05, momentum: 0.9 })
}

/**
 * Trains the whole model in this process.
 *
 * @param {import('./models.mjs').Problem} problem
 * @param {number} steps
 * @returns {Promise<StepResult[]>}
 */
export async function trainAlone(problem, steps) {
  const model = problem.build()
  const optimizer = makeOptimizer()
  const one = tf.scalar(1)
  const results = []
  for (let step = 0; step < steps; step++) {
    const { inputs, labels } = problem.batch(step, 0, problem.examples)
    const [x, y] = [inputs(), labels()]
    const forward = (/** @type {import('@tsrun/training').Tensor} */ h) =>
      crossEntropy(model.forward(h), y)
    const recording = record(forward, x, model.parameters, { needsInputGradient: false })
    /** @type {Map<string, import('@tsrun/training').Tensor>} */
    const gradients = new Map()
    recording.backward(one, ({ name }, gradient) => gradients.set(name, gradient))
    const loss = /** @type {number} */ (recording.value.dataSync()[0])
    recording.dispose()
    const before = valuesOf(gradients)
    const norm = await clipGradients(model.parameters, gradients, { maxNorm: MAX_NORM })
    optimizer.step(model.parameters, gradients)
    const parameters = valuesOf(new Map(model.parameters.map(({ name, value }) => [name, value])))
    results.push({ loss, norm, gradients: before, parameters })
    tf.dispose([x, y])
  }
  one.dispose()
  optimizer.dispose()
  for (const { value } of model.parameters) value.dispose()
  return results
}

/**
 * Copies of the values of tensors.
 *
 * @param {ReadonlyMap<string, import('@tsrun/training').Tensor | Float32Array>} tensors
 * @returns {Map<string, Float32Array>}
 */
export function valuesOf(tensors) {
  return new Map(
    Array.from(tensors, ([name, tensor]) => [
      name,
      Float32Array.from(ArrayBuffer.isView(tensor) ? tensor : tensor.dataSync()),
    ]),
  )
}
