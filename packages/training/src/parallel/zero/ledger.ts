import type { ProcessGroup } from '@tsrun/distributed'

/** Bytes of what training holds: parameters and gradients, their shards and what is whole. */
export interface StateMemory {
  readonly parameters: number
  readonly gradients: number
  /** The most that both were together, since the model was sharded or the last `resetPeak`. */
  readonly peak: number
  /** Begins a new peak with what there is. */
  resetPeak(): void
}

/** Counts the bytes of parameters and gradients as they come and go. */
export class Ledger implements StateMemory {
  parameters = 0
  gradients = 0
  peak = 0
  readonly #group: ProcessGroup

  constructor(group: ProcessGroup) {
    this.#group = group
  }

  count(kind: 'parameters' | 'gradients', bytes: number): void {
    this[kind] += bytes
    this.peak = Math.max(this.peak, this.parameters + this.gradients)
  }

  resetPeak(): void {
    this.peak = this.parameters + this.gradients
  }

  /** Zeros in the arena. */
  alloc(kind: 'parameters' | 'gradients', length: number): Float32Array {
    const buffer = this.#group.alloc('float32', length)
    this.count(kind, buffer.byteLength)
    return buffer
  }

  free(kind: 'parameters' | 'gradients', buffer: Float32Array): void {
    this.#group.free(buffer)
    this.count(kind, -buffer.byteLength)
  }
}
