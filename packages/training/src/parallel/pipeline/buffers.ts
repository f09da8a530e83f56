import type { ProcessGroup, Work } from '@tsrun/distributed'

interface Loan {
  readonly work: Work
  buffer: Float32Array | undefined
}

/** Float32 buffers in the arena of a group, used again and again. */
export class BufferPool {
  readonly #group: ProcessGroup
  readonly #free = new Map<number, Float32Array[]>()
  #loans: Loan[] = []

  constructor(group: ProcessGroup) {
    this.#group = group
  }

  /** A buffer that nobody uses; its contents are undefined. */
  take(length: number): Float32Array {
    for (const loan of this.#loans) if (loan.work.isCompleted()) this.#end(loan)
    return this.#free.get(length)?.pop() ?? this.#group.alloc('float32', length)
  }

  give(buffer: Float32Array): void {
    const list = this.#free.get(buffer.length)
    if (list === undefined) this.#free.set(buffer.length, [buffer])
    else list.push(buffer)
  }

  /** Takes the buffer back once `work`, which reads it, is done. */
  lend(buffer: Float32Array, work: Work): void {
    this.#loans.push({ work, buffer })
  }

  /**
   * Waits until all that was lent is back.
   *
   * @returns the finished work
   * @throws what the first failed work failed with
   */
  async flush(): Promise<Work[]> {
    const loans = this.#loans
    this.#loans = []
    for (const loan of loans) {
      await loan.work
      this.#end(loan)
    }
    return loans.map(({ work }) => work)
  }

  /** Frees the buffers that are not lent. */
  dispose(): void {
    for (const buffer of [...this.#free.values()].flat()) this.#group.free(buffer)
    this.#free.clear()
  }

  #end(loan: Loan): void {
    if (loan.buffer !== undefined) this.give(loan.buffer)
    loan.buffer = undefined
  }
}
