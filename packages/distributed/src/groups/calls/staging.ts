import type { Arena } from '../../arena/arena.ts'
import type { AnyTypedArray } from '../../dtype.ts'
import { detachedError } from './arguments.ts'
import type { Call } from './call.ts'

/** A buffer of the caller, and the place of its copy in the arena. */
interface Target {
  readonly buffer: AnyTypedArray
  readonly at: number
  readonly bytes: number
}

type Submitted = Pick<Call, 'input' | 'output' | 'table' | 'parts'>

/**
 * Places the buffers of a call in the arena. Buffers in the arena are used directly. Any other
 * buffer is *staged*: the engine works on a copy in the arena, and the result is copied back.
 */
export class StagedBuffers {
  /** Heap offset of the input, or of the output if there is no input. */
  readonly input: number
  /** Heap offset of the output, or of the input if there is no output. */
  readonly output: number
  readonly table: Float64Array | undefined
  readonly #arena: Arena
  #targets: Target[] | undefined
  readonly #copiesInput: boolean
  /** The blocks of the arena that this call allocated. */
  #blocks: number[] | undefined

  /** @throws ERR_TSR_ARENA_EXHAUSTED */
  constructor(arena: Arena, { input, output, table, parts }: Submitted) {
    this.#arena = arena
    const isStaged = output !== undefined && !arena.contains(output)
    try {
      this.table = table && this.#placeTable(table)
      const first = input ?? output
      const isCopied = first === output ? isStaged : !arena.contains(first!)
      this.#copiesInput = isCopied && input !== undefined
      if (parts === undefined) {
        this.input = first === undefined ? 0 : this.#place(first, input !== undefined, isCopied)
      } else {
        this.input = this.#pack(parts)
      }
      const isOne = first === output || output === undefined
      this.output = isOne ? this.input : this.#place(output, false, isStaged)
      if (isStaged) this.#addTarget(output, this.output)
    } catch (error) {
      this.free()
      throw error
    }
  }

  /** Copies the caller's input again if it is staged. */
  refill({ input }: Submitted): void {
    if (this.#copiesInput) this.#arena.heap.bytes.set(bytesOf(input!), this.input)
  }

  /** Copies the result to the caller's buffers if they are staged. @throws ERR_TSR_BUFFER */
  copyBack(operation: string): void {
    if (this.#targets === undefined) return
    for (const { buffer, at, bytes } of this.#targets) {
      if (buffer.byteLength !== bytes) throw detachedError(operation)
      bytesOf(buffer).set(this.#arena.heap.bytes.subarray(at, at + bytes))
    }
  }

  free(): void {
    for (const at of this.#blocks ?? []) this.#arena.releaseBytes(at)
    this.#blocks = undefined
  }

  #place(buffer: AnyTypedArray, hasInput: boolean, isCopied: boolean): number {
    if (!isCopied) return buffer.byteOffset
    const at = this.#take(buffer.byteLength)
    if (hasInput) this.#arena.heap.bytes.set(bytesOf(buffer), at)
    return at
  }

  /** Copies several buffers into one block. Returns its offset. */
  #pack(parts: readonly AnyTypedArray[]): number {
    const start = this.#take(parts.reduce((bytes, { byteLength }) => bytes + byteLength, 0))
    let at = start
    for (const buffer of parts) {
      this.#arena.heap.bytes.set(bytesOf(buffer), at)
      this.#addTarget(buffer, at)
      at += buffer.byteLength
    }
    return start
  }

  #addTarget(buffer: AnyTypedArray, at: number): void {
    if (buffer.byteLength === 0) return
    this.#targets ??= []
    this.#targets.push({ buffer, at, bytes: buffer.byteLength })
  }

  #placeTable(numbers: readonly number[]): Float64Array {
    const at = this.#take(numbers.length * Float64Array.BYTES_PER_ELEMENT)
    const table = new Float64Array(this.#arena.heap.doubles.buffer, at, numbers.length)
    table.set(numbers)
    return table
  }

  #take(bytes: number): number {
    const at = this.#arena.allocBytes(bytes)
    this.#blocks ??= []
    this.#blocks.push(at)
    return at
  }
}

function bytesOf({ buffer, byteOffset, byteLength }: AnyTypedArray): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength)
}
