import fc from 'fast-check'
import { createMemory, heapOf } from '../../../packages/distributed/src/arena/heap.ts'
import {
  EAGER_LIMIT,
  EngineMemory,
} from '../../../packages/distributed/src/engine/engine-memory.ts'
import { HEADER_BYTES } from '../../../packages/distributed/src/engine/frame.ts'

const heap = heapOf(createMemory(16 * 1024 * 1024))
const newMemory = (): EngineMemory => new EngineMemory(heap, 3, () => undefined)

describe('frame blocks', () => {
  it('hold their frame, are less than twice as large, and never overlap', () => {
    const payloads = fc.array(fc.integer({ min: 0, max: EAGER_LIMIT }), { maxLength: 100 })
    fc.assert(
      fc.property(payloads, payloads, (first, second) => {
        const memory = newMemory()
        const taken = first.map((payload) => ({ payload, at: memory.takeFrameBlock(payload) }))
        for (const { at, payload } of taken.splice(0, 50)) memory.giveFrameBlock(at, payload)
        for (const payload of second) taken.push({ payload, at: memory.takeFrameBlock(payload) })
        taken.sort((a, b) => a.at - b.at)
        for (const [i, { at, payload }] of taken.entries()) {
          const next = taken[i + 1]
          if (next !== undefined) expect(at + HEADER_BYTES + payload).toBeLessThanOrEqual(next.at)
        }
      }),
    )
    const memory = newMemory()
    for (const payload of [0, 16, 17, 80, 500, 5000, EAGER_LIMIT]) {
      const before = memory.used
      memory.takeFrameBlock(payload)
      expect(memory.used - before).toBeLessThan(2 * (payload + HEADER_BYTES) + 64)
    }
  })

  it('are used again, and not kept without bound', () => {
    const memory = newMemory()
    for (let round = 0; round < 10; round++) {
      const blocks = Array.from({ length: 300 }, () => memory.takeFrameBlock(EAGER_LIMIT))
      for (const at of blocks) memory.giveFrameBlock(at, EAGER_LIMIT)
    }
    expect(memory.used).toBeLessThan(65 * (EAGER_LIMIT + 128))
  })

  it('say whose memory is full', () => {
    const memory = newMemory()
    expect(() => memory.allocate(9 * 1024 * 1024)).toThrow('of rank 3 has no room')
  })
})
