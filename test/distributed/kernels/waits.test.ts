import { createMemory, heapOf, instantiateKernels } from '../../internals/distributed/arena.ts'

const heap = heapOf(createMemory(65536))
const kernels = instantiateKernels(heap.memory)
const words = new Int32Array(heap.bytes.buffer)

describe('waiting for a word in memory', () => {
  it('ends when the word reaches a count, even if the counter wraps at 2^32', () => {
    const cases = [
      { word: 4, count: 5, hasCome: false },
      { word: 5, count: 5, hasCome: true },
      { word: 6, count: 5, hasCome: true },
      { word: 0x7fff_ffff, count: 0x8000_0000 | 0, hasCome: false },
      { word: 0x8000_0001 | 0, count: 0x7fff_ffff, hasCome: true },
      { word: -1, count: 0, hasCome: false },
    ]
    for (const { word, count, hasCome } of cases) {
      words[1] = word
      expect(kernels.awaitCount(4, count, 10)).toBe(Number(hasCome))
    }
  })

  it('ends when one of several words has changed since the previous wait', () => {
    const table = 1024
    words.set([400, 0, 404, 0], table / 4)
    expect(kernels.awaitChange(table, 2, 10)).toBe(0)
    words[101] = 7
    expect(kernels.awaitChange(table, 2, 1)).toBe(1)
    expect(kernels.awaitChange(table, 2, 10)).toBe(0)
    words.set([3, 8], 100)
    expect(kernels.awaitChange(table, 2, 1)).toBe(1)
    expect(kernels.awaitChange(table, 1, 10)).toBe(0)
    expect(kernels.awaitChange(table, 2, 10)).toBe(0)
  })
})
