import fc from 'fast-check'
import { createAllocator } from '../../internals/distributed/arena.ts'

const START = 64
const END = 64 * 1024

/** A call: allocate so many bytes, or release the block allocated at this place of the list. */
const calls = fc.array(
  fc.oneof(
    fc.record({ allocate: fc.integer({ min: 0, max: 8000 }) }),
    fc.record({ release: fc.nat({ max: 1000 }) }),
  ),
  { maxLength: 300 },
)

describe('the arena allocator', () => {
  it('returns aligned blocks that never overlap, and reuses all released memory', () => {
    fc.assert(
      fc.property(calls, (list) => {
        const allocator = createAllocator(START, END)
        const blocks: { at: number; bytes: number }[] = []
        for (const call of list) {
          if ('allocate' in call) {
            const bytes = call.allocate
            const at = allocator.allocate(bytes)
            if (at < 0) {
              // only when no gap between the blocks would hold it
              expect(largestGap(blocks)).toBeLessThan(rounded(bytes))
              continue
            }
            expect(at % 64).toBe(0)
            expect(at >= START && at + bytes <= END).toBe(true)
            for (const block of blocks) {
              expect(at + bytes <= block.at || block.at + block.bytes <= at).toBe(true)
            }
            blocks.push({ at, bytes: rounded(bytes) })
          } else if (blocks.length > 0) {
            const [block] = blocks.splice(call.release % blocks.length, 1)
            expect(allocator.release(block!.at)).toBe(true)
            expect(allocator.release(block!.at)).toBe(false)
          }
          expect(allocator.used()).toBe(blocks.reduce((sum, { bytes }) => sum + bytes, 0))
        }
        for (const { at } of blocks) allocator.release(at)
        expect(allocator.used()).toBe(0)
        expect(allocator.allocate(allocator.capacity)).toBe(START)
      }),
      { numRuns: 200 },
    )
  })

  it('refuses to release a block that it has not allocated', () => {
    expect(createAllocator(START, END).release(START)).toBe(false)
  })
})

function rounded(bytes: number): number {
  return Math.ceil(Math.max(bytes, 1) / 64) * 64
}

function largestGap(blocks: readonly { at: number; bytes: number }[]): number {
  const sorted = [...blocks].sort((a, b) => a.at - b.at)
  let from = START
  let largest = 0
  for (const { at, bytes } of [...sorted, { at: END, bytes: 0 }]) {
    largest = Math.max(largest, at - from)
    from = at + bytes
  }
  return largest
}
