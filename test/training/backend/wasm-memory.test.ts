import { createTensor, loadBackend, tf, type Tensor } from '@tsrun/training'

describe('the memory of the wasm backend', () => {
  beforeAll(() => loadBackend('wasm'))

  it('ends in an error that says what is there, and is usable after it', () => {
    const kept = tf.tensor1d([1, 2, 3])
    // Memory that is never touched takes none of the machine's.
    const quarter = () => createTensor([2 ** 26], () => undefined)
    const tensors: Tensor[] = []
    const fill = () => {
      for (let i = 0; i < 16; i++) tensors.push(quarter())
    }
    expect(fill).toThrow(
      expect.objectContaining({
        code: 'ERR_TSR_TENSOR_MEMORY',
        message: expect.stringMatching(
          /a tensor of 256 MiB: \d+ tensors hold 3\d{3}\.?\d* MiB already.*of the 4096 MiB/,
        ) as string,
      }),
    )
    expect(tensors).toHaveLength(15)
    expect([...kept.dataSync()]).toEqual([1, 2, 3])
    expect(() => tf.zeros([2 ** 26])).toThrow(
      expect.objectContaining({ code: 'ERR_TSR_TENSOR_MEMORY' }),
    )
    const before = tf.memory()
    expect(() => tf.add(tensors[0]!, 1)).toThrow(
      expect.objectContaining({ code: 'ERR_TSR_TENSOR_MEMORY' }),
    )
    expect(tf.memory().numTensors).toBe(before.numTensors)
    tf.dispose(tensors.splice(0, 14))
    const product = tf.matMul(tf.ones([64, 64]), tf.ones([64, 64]))
    expect(product.dataSync()[4095]).toBe(64)
    // Addresses above 2 GiB work as any other.
    const high = tensors[0]!
    expect(high.isDisposed).toBe(false)
    expect(quarter().size).toBe(2 ** 26)
  })
})
