/** Alignment of blocks in bytes: a cache line, which is also a multiple of a SIMD vector. */
const ALIGNMENT = 64

interface Block {
  readonly at: number
  readonly length: number
}

/** Creates a first-fit allocator of byte ranges of the heap. It merges free neighbours. */
export function createAllocator(from: number, end: number) {
  const start = align(from)
  const capacity = end - start
  /** Free ranges in order of offset. Neighbouring ranges are merged. */
  const free: Block[] = [{ at: start, length: capacity }]
  const lengths = new Map<number, number>()
  let used = 0
  return {
    capacity,
    used: () => used,
    /** Returns the offset of a block, or -1 if no free range is large enough. */
    allocate(bytes: number): number {
      const length = align(Math.max(bytes, 1))
      const i = free.findIndex((block) => block.length >= length)
      const block = free[i]
      if (block === undefined) return -1
      if (block.length === length) free.splice(i, 1)
      else free[i] = { at: block.at + length, length: block.length - length }
      lengths.set(block.at, length)
      used += length
      return block.at
    },
    /** Frees a block. Returns false if no block starts there. */
    release(at: number): boolean {
      const length = lengths.get(at)
      if (length === undefined) return false
      lengths.delete(at)
      used -= length
      let i = free.findIndex((block) => block.at > at)
      if (i < 0) i = free.length
      const before = free[i - 1]
      const after = free[i]
      const joinsBefore = endOf(before) === at
      const joinsAfter = after?.at === at + length
      const first = joinsBefore ? before!.at : at
      const last = joinsAfter ? endOf(after)! : at + length
      const joined = (joinsBefore ? 1 : 0) + (joinsAfter ? 1 : 0)
      free.splice(joinsBefore ? i - 1 : i, joined, { at: first, length: last - first })
      return true
    },
  }
}

function endOf(block: Block | undefined): number | undefined {
  return block && block.at + block.length
}

function align(value: number): number {
  return Math.ceil(value / ALIGNMENT) * ALIGNMENT
}
