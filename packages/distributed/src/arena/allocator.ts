/** Alignment of blocks in bytes: a cache line, which is also a multiple of a SIMD vector. */
const ALIGNMENT = 64

interface Block {
  readonly at: number
  readonly length: number
}

/** First-fit allocator of byte ranges of the heap. It merges free neighbours. */
export class Allocator {
  readonly #start: number
  readonly #end: number
  /** Free ranges in order of offset. Neighbouring ranges are merged. */
  #free: Block[]
  readonly #lengths = new Map<number, number>()
  #used = 0

  constructor(start: number, end: number) {
    this.#start = align(start)
    this.#end = end
    this.#free = [{ at: this.#start, length: this.#end - this.#start }]
  }

  get used(): number {
    return this.#used
  }

  get capacity(): number {
    return this.#end - this.#start
  }

  /**
   * Returns the offset of a block of at least `bytes` bytes, or -1 if no free range is large
   * enough.
   */
  allocate(bytes: number): number {
    const length = align(Math.max(bytes, 1))
    const i = this.#free.findIndex((block) => block.length >= length)
    const block = this.#free[i]
    if (block === undefined) return -1
    if (block.length === length) this.#free.splice(i, 1)
    else this.#free[i] = { at: block.at + length, length: block.length - length }
    this.#lengths.set(block.at, length)
    this.#used += length
    return block.at
  }

  /** Frees a block. Returns false if no block starts there. */
  release(at: number): boolean {
    const length = this.#lengths.get(at)
    if (length === undefined) return false
    this.#lengths.delete(at)
    this.#used -= length
    let i = this.#free.findIndex((block) => block.at > at)
    if (i < 0) i = this.#free.length
    const before = this.#free[i - 1]
    const after = this.#free[i]
    const joinsBefore = endOf(before) === at
    const joinsAfter = after?.at === at + length
    const from = joinsBefore ? before!.at : at
    const to = joinsAfter ? endOf(after)! : at + length
    const first = joinsBefore ? i - 1 : i
    this.#free.splice(first, (joinsBefore ? 1 : 0) + (joinsAfter ? 1 : 0), {
      at: from,
      length: to - from,
    })
    return true
  }

  contains(at: number, bytes: number): boolean {
    return at >= this.#start && at + bytes <= this.#end
  }
}

function endOf(block: Block | undefined): number | undefined {
  return block && block.at + block.length
}

function align(value: number): number {
  return Math.ceil(value / ALIGNMENT) * ALIGNMENT
}
