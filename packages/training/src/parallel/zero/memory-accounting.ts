import type { ProcessGroup } from '@tsrun/distributed'

/** The bytes of parameters and gradients that this rank holds, sharded or not. */
export interface StateMemory {
  readonly parameters: number
  readonly gradients: number
  /** The largest sum of `parameters` and `gradients` since the model was sharded, or since `resetPeak`. */
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
    return this.allocUnsafe(kind, length).fill(0)
  }

  /** Allocates an array with undefined contents in the arena. */
  allocUnsafe(kind: Kind, length: number): Float32Array {
    const buffer = this.#group.allocUnsafe('float32', length)
    this.count(kind, buffer.byteLength)
    return buffer
  }

  free(kind: Kind, buffer: Float32Array): void {
    this.#group.free(buffer)
    this.count(kind, -buffer.byteLength)
  }
}
