import { createTensor, loadBackend, tf, viewOf } from '@tsrun/training'

describe.each(['wasm', 'cpu'] as const)('host memory on %s', (name) => {
  beforeAll(() => loadBackend(name))

  it('creates a tensor in place that operations can use', () => {
    const before = tf.memory().numTensors
    const tensor = tf.tidy(() =>
      createTensor([2, 3], (values) => {
        values.set([1, 2, 3, 4, 5, 6])
      }),
    )
    expect(tensor.shape).toEqual([2, 3])
    const sums = tf.sum(tensor, 0)
    expect([...sums.dataSync()]).toEqual([5, 7, 9])
    sums.dispose()
    tensor.dispose()
    expect(tf.memory().numTensors).toBe(before)
  })

  it('shows the values of results', () => {
    const tensor = tf.add(tf.ones([4]), tf.tensor1d([1, 2, 3, 4]))
    expect([...viewOf(tensor)]).toEqual([2, 3, 4, 5])
    tensor.dispose()
  })
})
