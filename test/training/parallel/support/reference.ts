import { isDeepStrictEqual } from 'node:util'
import { crossEntropy, record, tf, type Module, type Optimizer, type Tensor } from '@tsrun/training'

// Jest looks up a global name at each use, which takes longer than the function.
const { abs, sin } = Math

export type Values = Record<string, Float32Array>

export interface Snapshot {
  readonly loss: number
  readonly gradients: Values
  /** After the update. */
  readonly parameters: Values
}

/** Batch number `step` of a small problem that can be learned. */
export function exampleBatch(
  step: number,
  size: number,
  inputs: number,
  classes: number,
): { inputs: () => Tensor; labels: () => Tensor } {
  const value = (row: number, column: number): number =>
    sin(1 + row * 12.9898 + column * 78.233 + step * 37.719)
  const rows = Array.from({ length: size }, (_, row) =>
    Array.from({ length: inputs }, (_, column) => value(row, column)),
  )
  const label = (row: number[]): number =>
    row.slice(0, classes).indexOf(Math.max(...row.slice(0, classes)))
  return {
    inputs: () => tf.tensor2d(rows, [size, inputs], 'float32'),
    labels: () => tf.tensor1d(rows.map(label), 'int32'),
  }
}

/** Rows [from, to) of a batch, as tensors. */
export function exampleRows(
  step: number,
  [from, to]: readonly [number, number],
  { batch, inputs: width, classes }: Readonly<Record<'batch' | 'inputs' | 'classes', number>>,
): { inputs: Tensor; labels: Tensor } {
  const { inputs, labels } = exampleBatch(step, batch, width, classes)
  const whole = [inputs(), labels()] as const
  const rows = [
    tf.slice(whole[0], [from, 0], [to - from, width]),
    tf.slice(whole[1], [from], [to - from]),
  ] as const
  tf.dispose([...whole])
  return { inputs: rows[0], labels: rows[1] }
}

/** One step of the whole model in one piece: what every layout has to reproduce. */
export function singleProcessStep(
  module: Module,
  batch: { inputs: () => Tensor; labels: () => Tensor },
  optimizer: Optimizer,
): Snapshot {
  const [x, labels] = [batch.inputs(), batch.labels()]
  const forward = (input: Tensor): Tensor => crossEntropy(module.forward(input), labels)
  const recording = record(forward, x, module.parameters, { needsInputGradient: false })
  const gradients = new Map<string, Tensor>()
  const one = tf.scalar(1)
  recording.backward(one, ({ name }, gradient) => gradients.set(name, gradient))
  const loss = recording.value.dataSync()[0]!
  const snapshot = { loss, gradients: values(gradients) }
  optimizer.step(module.parameters, gradients)
  recording.dispose()
  tf.dispose([x, labels, one])
  return { ...snapshot, parameters: parameterValues(module) }
}

export function values(tensors: ReadonlyMap<string, Tensor>): Values {
  return Object.fromEntries([...tensors].map(([name, tensor]) => [name, copy(tensor)]))
}

export function parameterValues(module: Pick<Module, 'parameters'>): Values {
  return Object.fromEntries(module.parameters.map(({ name, value }) => [name, copy(value)]))
}

/** As `toEqual`, which takes long for arrays of many numbers; only a failure is worth that. */
export function expectSame(found: unknown, wanted: unknown): void {
  if (!isDeepStrictEqual(found, wanted)) expect(found).toEqual(wanted)
}

/** Largest excess of |a - b| over atol + rtol |b|; at most 0 when all are close. */
export function excess(actual: Values, wanted: Values, rtol = 1e-5, atol = 1e-6): number {
  const shapeOf = (values: Values) => Object.keys(values).sort().join()
  // tests compare so often that matchers would take longer than what they check
  if (shapeOf(actual) !== shapeOf(wanted)) expect(shapeOf(actual)).toBe(shapeOf(wanted))
  let worst = -Infinity
  for (const [name, array] of Object.entries(wanted)) {
    const other = actual[name]!
    if (other.length !== array.length) expect(other).toHaveLength(array.length)
    for (let at = 0; at < array.length; at++) {
      const value = array[at]!
      const over = abs(other[at]! - value) - atol - rtol * abs(value)
      if (!(over <= worst)) worst = over
    }
  }
  return worst
}

function copy(tensor: Tensor): Float32Array {
  return new Float32Array(tensor.dataSync())
}
