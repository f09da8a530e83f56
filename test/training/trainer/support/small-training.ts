import { runWorld } from '@tsrun/distributed'
import { shardedMLP, type AnyBatch, type Field } from '@tsrun/training'

export const FEATURES = 5
export const CLASSES = 3

const inputs: Field<'float32'> = {
  shape: [FEATURES],
  dtype: 'float32',
  read(indices, out) {
    indices.forEach((index, row) => {
      for (let i = 0; i < FEATURES; i++) out[row * FEATURES + i] = Math.sin(7 * index + 3 * i)
    })
  },
}
const labels: Field<'int32'> = {
  shape: [],
  dtype: 'int32',
  read(indices, out) {
    indices.forEach((index, row) => {
      out[row] = index % CLASSES
    })
  },
}
/** Examples of three classes. */
export const dataset = { size: 50, fields: { inputs, labels } }

export const recipe = shardedMLP({
  layers: 2,
  inputs: FEATURES,
  hidden: 8,
  outputs: CLASSES,
  seed: 1,
})

/** What a script without types may pass. */
export const given = (value: unknown) => value as never

export const quiet = { progress: false } as const

export function batchAt(step: number, size = 8): AnyBatch {
  const indices = Int32Array.from({ length: size }, (_, i) => (step * size + i) % dataset.size)
  const [x, y] = [new Float32Array(size * FEATURES), new Int32Array(size)]
  inputs.read(indices, x)
  labels.read(indices, y)
  return { size, inputs: x, labels: y }
}

/** A group of this process alone, which needs no job. */
export async function alone() {
  const [group] = await runWorld({ size: 1 }, (one) => Promise.resolve(one))
  return group!
}
