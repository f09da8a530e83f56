import { createTensor, generator, loadBackend, tf, uniform, type Tensor } from '@tsrun/training'

describe('the memory of the wasm backend', () => {
  beforeAll(() => loadBackend('wasm'))

  it('reports its use in an error when full, and remains usable', () => {
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
          /a tensor of 256 MiB: \d+ tensors already hold 3\d{3}\.?\d* MiB.*of the 3968 MiB/,
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
    const small = () => {
      for (;;) tensors.push(createTensor([2 ** 20], () => undefined))
    }
    expect(small).toThrow(expect.objectContaining({ code: 'ERR_TSR_TENSOR_MEMORY' }))
    // Kernels that need memory of their own have it still.
    const filter = tf.tensor4d([1, 1], [1, 1, 2, 1])
    const image = tf.tensor4d([1, 2, 3, 4], [1, 1, 2, 2])
    tf.dispose(tensors.splice(-1))
    expect([...tf.conv2d(image, filter, 1, 'valid').dataSync()]).toEqual([3, 7])
    const high = tensors[14]!
    tf.dispose([...tensors.splice(0, 14), ...tensors.splice(1)])
    const product = tf.matMul(tf.ones([64, 64]), tf.ones([64, 64]))
    expect(product.dataSync()[4095]).toBe(64)
    // Addresses above 2 GiB work as any other.
    expect(high.isDisposed).toBe(false)
    expect(quarter().size).toBe(2 ** 26)
  })

  it('never allocates memory that is in use, even when full', () => {
    const { wasm } = tf.engine().backend as unknown as {
      wasm: { _malloc(bytes: number): number; _free(address: number): void; HEAPU8: Uint8Array }
    }
    const next = generator('requests', 1)
    const blocks: { start: number; end: number }[] = []
    let refused = 0
    for (let i = 0; i < 2000; i++) {
      if (next() % 5 < 2 && blocks.length > 0) {
        const [block] = blocks.splice(next() % blocks.length, 1)
        wasm._free(block!.start)
        continue
      }
      // From a byte to 512 MiB, small and large ones alike.
      const bytes = 1 + Math.floor(2 ** (29 * uniform(next)))
      try {
        const start = wasm._malloc(bytes) >>> 0
        const end = start + bytes
        expect(start).toBeGreaterThan(0)
        expect(end).toBeLessThanOrEqual(wasm.HEAPU8.length)
        expect(blocks.find((block) => block.start < end && start < block.end)).toBeUndefined()
        blocks.push({ start, end })
      } catch (error) {
        expect(error).toMatchObject({ code: 'ERR_TSR_TENSOR_MEMORY' })
        refused++
      }
    }
    expect(refused).toBeGreaterThan(50)
    for (const { start } of blocks) wasm._free(start)
    expect(tf.matMul(tf.ones([9, 9]), tf.ones([9, 9])).dataSync()[80]).toBe(9)
  })
})
