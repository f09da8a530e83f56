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

type Kind = 'parameters' | 'gradients'

/** Counts the bytes of parameters and gradients as they come and go. */
export class Ledger implements StateMemory {
  parameters = 0
  gradients = 0
  peak = 0
  readonly #group: ProcessGroup
  #spare: { readonly kind: Kind; readonly buffer: Float32Array }[] = []

  constructor(group: ProcessGroup) {
    this.#group = group
  }

  count(kind: Kind, bytes: number): void {
    this[kind] += bytes
    this.peak = Math.max(this.peak, this.parameters + this.gradients)
  }

  resetPeak(): void {
    this.peak = this.parameters + this.gradients
  }

  /** Zeros in the arena. */
  alloc(kind: Kind, length: number): Float32Array {
    const buffer = this.#group.alloc('float32', length)
    this.count(kind, buffer.byteLength)
    return buffer
  }

  free(kind: Kind, buffer: Float32Array): void {
    this.#group.free(buffer)
    this.count(kind, -buffer.byteLength)
  }

  /**
   * Memory in the arena for a moment, of any values. What was given back is used again, as the arena
   * has to write zeros; it counts until `trim`, or until another length is needed.
   */
  borrow(kind: Kind, length: number): Float32Array {
    const at = this.#spare.findIndex(({ buffer }) => buffer.length === length)
    const [found] = at < 0 ? [] : this.#spare.splice(at, 1)
    if (found === undefined) {
      this.trim()
      return this.alloc(kind, length)
    }
    this.count(found.kind, -found.buffer.byteLength)
    this.count(kind, found.buffer.byteLength)
    return found.buffer
  }

  giveBack(kind: Kind, buffer: Float32Array): void {
    this.#spare.push({ kind, buffer })
  }

  /** Frees what was given back. */
  trim(): void {
    for (const { kind, buffer } of this.#spare) this.free(kind, buffer)
    this.#spare = []
  }
}
