import { createTensor, loadBackend } from '@tsrun/training'

describe('the memory of tensors on the wasm backend', () => {
  beforeAll(() => loadBackend('wasm'))

  it('begins at a cache line, and is freed with the tensor', () => {
    const sizes = [16, 17, 33, 65, 1000, 4097]
    const begins = new Set<number>()
    for (let round = 0; round < 50; round++) {
      const tensors = sizes.map((size) =>
        createTensor([size], ({ byteOffset }) => {
          expect(byteOffset % 64).toBe(0)
          begins.add(byteOffset)
        }),
      )
      for (const tensor of tensors) tensor.dispose()
    }
    expect(begins.size).toBeLessThan(3 * sizes.length)
  })
})
