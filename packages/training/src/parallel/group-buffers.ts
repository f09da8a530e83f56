import type { PersistentOperation, ProcessGroup, Work } from '@tsrun/distributed'

/**
 * Allocates float32 buffers with arbitrary contents in a group's arena, all or none. Free each of them
 * with `freeAfter`.
 */
export function allocateAll(group: ProcessGroup, lengths: readonly number[]): Float32Array[] {
  const buffers: Float32Array[] = []
  try {
    for (const length of lengths) buffers.push(group.allocUnsafe('float32', length))
    return buffers
  } catch (error) {
    for (const buffer of buffers) group.free(buffer)
    throw error
  }
}

/** Frees a buffer as soon as the operation that uses it, if any, has succeeded or failed. */
export function freeAfter(
  work: Work<unknown> | undefined,
  group: ProcessGroup,
  buffer: Parameters<ProcessGroup['free']>[0],
): void {
  const free = (): void => {
    group.free(buffer)
  }
  if (work === undefined || work.isCompleted()) free()
  else void work.then(free, free)
}

/** Frees a prepared operation, and what it works on, as soon as no run of it is under way. */
export function freeAfterRun(operation: PersistentOperation, freeBuffers?: () => void): void {
  const free = (): void => {
    operation.free()
    freeBuffers?.()
  }
  if (operation.isCompleted()) free()
  else void operation.done().then(free, free)
}

interface Loan {
  readonly work: Work
  buffer: Float32Array | undefined
}

/** Reusable float32 buffers in the arena of a group. */
export class BufferPool {
  readonly #group: ProcessGroup
  readonly #free = new Map<number, Float32Array[]>()
  #loans: Loan[] = []

  constructor(group: ProcessGroup) {
    this.#group = group
  }

  /** Returns a buffer that is not in use; its contents are undefined. */
  take(length: number): Float32Array {
    for (const loan of this.#loans) if (loan.work.isCompleted()) this.#end(loan)
    return this.#free.get(length)?.pop() ?? this.#group.allocUnsafe('float32', length)
  }

  give(buffer: Float32Array): void {
    const list = this.#free.get(buffer.length)
    if (list === undefined) this.#free.set(buffer.length, [buffer])
    else list.push(buffer)
  }

  /** Takes the buffer back once `work`, which reads it, has completed. */
  lend(buffer: Float32Array, work: Work): void {
    this.#loans.push({ work, buffer })
  }

  /**
   * Waits until all lent buffers are back.
   *
   * @returns the completed work
   * @throws the error of the first work that failed
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
