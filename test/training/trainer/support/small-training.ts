import { runWorld } from '@tsrun/distributed'
import { shardedMLP, type AnyBatch, type Dataset } from '@tsrun/training'

export const FEATURES = 5
export const CLASSES = 3

/** Examples whose class is where their largest value is. */
export const dataset: Dataset = {
  size: 50,
  features: FEATURES,
  classes: CLASSES,
  readInputs(indices, out) {
    indices.forEach((index, row) => {
      for (let i = 0; i < FEATURES; i++) out[row * FEATURES + i] = Math.sin(7 * index + 3 * i)
    })
  },
  readLabels(indices, out) {
    indices.forEach((index, row) => {
      out[row] = index % CLASSES
    })
  },
}

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
  const inputs = new Float32Array(size * FEATURES)
  const labels = new Int32Array(size)
  dataset.readInputs(indices, inputs)
  dataset.readLabels(indices, labels)
  return { size, inputs, labels }
}

/** A group of this process alone, which needs no job. */
export async function alone() {
  const [group] = await runWorld({ size: 1 }, (one) => Promise.resolve(one))
  return group!
}
