import * as tfjs from '@tensorflow/tfjs'
import { denseNames, ownerOfLayers } from '@tsrun/layers'
import {
  loadBackend,
  loadCheckpoint,
  openSafetensors,
  saveCheckpoint,
  shardedMLP,
  tf,
} from '@tsrun/training'
import { join } from 'node:path'
import { parameterValues } from '../training/parallel/support/reference.ts'
import { makeFolder, removeFolders } from '../training/checkpoint/support/folder.ts'

afterEach(removeFolders)
beforeAll(async () => {
  await loadBackend('cpu')
})

function layersModel(): tfjs.Sequential {
  return tfjs.sequential({
    layers: [
      tfjs.layers.dense({ name: 'hidden', inputShape: [5], units: 7, activation: 'relu' }),
      tfjs.layers.dropout({ rate: 0.5 }),
      tfjs.layers.dense({ name: 'scores', units: 3 }),
    ],
  })
}

const outputOf = (model: tfjs.Sequential) =>
  (model.predict(tf.ones([1, 5]) as never) as tfjs.Tensor).dataSync()

it('a tf.layers model is saved and loaded by the names of its layers', async () => {
  const folder = makeFolder()
  const [model, other] = [layersModel(), layersModel()]
  const { path } = await saveCheckpoint(folder, { model: ownerOfLayers(model), step: 3 })
  const file = openSafetensors(join(path, 'rank-00000-of-00001.safetensors'))
  expect([...file.entries.keys()]).toEqual([
    'hidden.kernel',
    'hidden.bias',
    'scores.kernel',
    'scores.bias',
  ])
  const before = tf.memory().numTensors
  await loadCheckpoint(folder, { model: ownerOfLayers(other) })
  expect(tf.memory().numTensors).toBe(before)
  expect(outputOf(other)).toEqual(outputOf(model))
})

it('dense layers of tf.layers and of this package can load the same checkpoints', async () => {
  const folder = makeFolder()
  const ours = shardedMLP({ layers: 2, inputs: 5, hidden: 7, outputs: 3, seed: 4 }).build()
  await saveCheckpoint(folder, { model: ours, step: 1 })
  const model = layersModel()
  await loadCheckpoint(folder, { model: ownerOfLayers(model, denseNames) })
  const [expected] = [ours.forward(tf.ones([1, 5])).dataSync()]
  expect([...outputOf(model)].map((value, i) => value - expected[i]!)).toEqual([
    expect.closeTo(0, 5),
    expect.closeTo(0, 5),
    expect.closeTo(0, 5),
  ])
  await saveCheckpoint(folder, { model: ownerOfLayers(model, denseNames), step: 2 })
  const again = shardedMLP({ layers: 2, inputs: 5, hidden: 7, outputs: 3 }).build()
  const { step } = await loadCheckpoint(folder, { model: again })
  expect(step).toBe(2)
  expect(parameterValues(again)).toEqual(parameterValues(ours))
})
