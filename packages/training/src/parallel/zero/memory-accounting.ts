import type { ProcessGroup } from '@tsrun/distributed'

/** The bytes of parameters and gradients that this rank holds, sharded or not. */
export interface StateMemory {
  readonly parameters: number
  readonly gradients: number
  /** The largest sum of both numbers since the model was sharded, or since the last `resetPeak`. */
  readonly peak: number
  /** Resets `peak` to the current number of bytes. */
  resetPeak(): void
}

type Kind = 'parameters' | 'gradients'

/** Allocates memory for parameters and gradients in a group's arena, and tracks its size. */
export class MemoryAccounting implements StateMemory {
  parameters = 0
  gradients = 0
  peak = 0
  readonly #group: ProcessGroup
  #spare: { readonly kind: Kind; readonly buffer: Float32Array }[] = []

  constructor(group: ProcessGroup) {
    this.#group = group
  }

  /** Tracks memory that is allocated elsewhere. A negative number of bytes means that memory is freed. */
  count(kind: Kind, bytes: number): void {
    this[kind] += bytes
    this.peak = Math.max(this.peak, this.parameters + this.gradients)
  }

  resetPeak(): void {
    this.peak = this.parameters + this.gradients
  }

  /** Allocates an array of zeros in the arena. */
  alloc(kind: Kind, length: number): Float32Array {
    return this.#counted(kind, this.#group.alloc('float32', length))
  }

  free(kind: Kind, buffer: Float32Array): void {
    this.#group.free(buffer)
    this.count(kind, -buffer.byteLength)
  }

  /**
   * Allocates temporary memory with undefined contents in the arena. Returned memory stays allocated for
   * reuse, and still counts. It is freed by `trim`, or when an array of another length is borrowed.
   */
  borrow(kind: Kind, length: number): Float32Array {
    const at = this.#spare.findIndex(({ buffer }) => buffer.length === length)
    const [found] = at < 0 ? [] : this.#spare.splice(at, 1)
    if (found === undefined) {
      this.trim()
      return this.#counted(kind, this.#group.allocUnsafe('float32', length))
    }
    this.count(found.kind, -found.buffer.byteLength)
    this.count(kind, found.buffer.byteLength)
    return found.buffer
  }

  giveBack(kind: Kind, buffer: Float32Array): void {
    this.#spare.push({ kind, buffer })
  }

  /** Frees the memory that was returned by `giveBack`. */
  trim(): void {
    for (const { kind, buffer } of this.#spare) this.free(kind, buffer)
    this.#spare = []
  }

  #counted(kind: Kind, buffer: Float32Array): Float32Array {
    this.count(kind, buffer.byteLength)
    return buffer
  }
}
