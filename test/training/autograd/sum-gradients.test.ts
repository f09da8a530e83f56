import { loadBackend, sumInto, tf, type Tensor } from '@tsrun/training'
import { build, gradient } from '../optim/support/cases.ts'

it('gradients of micro-batches are summed by name', async () => {
  await loadBackend('wasm')
  const gradients = new Map<string, Tensor>()
  const before = tf.memory().numTensors
  const add = sumInto(gradients)
  for (const values of [
    [1, 2],
    [3, 4],
    [5, 6],
  ])
    add(build('p', [0, 0]), gradient(values))
  expect([...gradients.get('p')!.dataSync()]).toEqual([9, 12])
  expect(tf.memory().numTensors - before).toBe(4)
})

it('summing gradients does not change another tensor that shares their memory', async () => {
  await loadBackend('wasm')
  const gradients = new Map<string, Tensor>()
  const add = sumInto(gradients)
  const mine = gradient([1, 2, 3, 4, 5])
  add(build('p', []), tf.clone(mine))
  add(build('p', []), gradient([1, 1, 1, 1, 1]))
  expect([...gradients.get('p')!.dataSync()]).toEqual([2, 3, 4, 5, 6])
  expect([...mine.dataSync()]).toEqual([1, 2, 3, 4, 5])
})
