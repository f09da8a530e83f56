import type { Arena } from '../../arena/arena.ts'
import type { AnyTypedArray } from '../../dtype.ts'
import { detachedError } from './arguments.ts'
import type { Call } from './call.ts'

type Submitted = Pick<Call, 'input' | 'output' | 'table'>

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
  /** The caller's output, if the engine works on a copy of the output, and its length in bytes. */
  readonly #target: AnyTypedArray | undefined
  readonly #targetBytes: number
  readonly #copiesInput: boolean
  /** The blocks of the arena that this call allocated. */
  #blocks: number[] | undefined

  /** @throws ERR_TSR_ARENA_EXHAUSTED */
  constructor(arena: Arena, { input, output, table }: Submitted) {
    this.#arena = arena
    const isStaged = output !== undefined && !arena.contains(output)
    try {
      this.table = table && this.#placeTable(table)
      const first = input ?? output
      const isCopied = first === output ? isStaged : !arena.contains(first!)
      this.#copiesInput = isCopied && input !== undefined
      this.input = first === undefined ? 0 : this.#place(first, input !== undefined, isCopied)
      const isOne = first === output || output === undefined
      this.output = isOne ? this.input : this.#place(output, false, isStaged)
    } catch (error) {
      this.free()
      throw error
    }
    this.#target = isStaged ? output : undefined
    this.#targetBytes = isStaged ? output.byteLength : 0
  }

  /** Copies the caller's input again if it is staged. */
  refill({ input }: Submitted): void {
    if (this.#copiesInput) this.#arena.heap.bytes.set(bytesOf(input!), this.input)
  }

  /** Copies the result to the caller's output if it is staged. @throws ERR_TSR_BUFFER */
  copyBack(operation: string): void {
    const bytes = this.#targetBytes
    if (this.#target === undefined || bytes === 0) return
    if (this.#target.byteLength !== bytes) throw detachedError(operation, 'the buffer')
    bytesOf(this.#target).set(this.#arena.heap.bytes.subarray(this.output, this.output + bytes))
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

/** Copies several buffers into one block of the arena. @throws ERR_TSR_ARENA_EXHAUSTED */
export function packInto(arena: Arena, operation: string, buffers: readonly AnyTypedArray[]) {
  const at = arena.allocBytes(buffers.reduce((bytes, { byteLength }) => bytes + byteLength, 0))
  let end = at
  const parts = buffers.map((buffer) => {
    const part = arena.heap.bytes.subarray(end, end + buffer.byteLength)
    part.set(bytesOf(buffer))
    end += buffer.byteLength
    return { buffer, part }
  })
  return {
    at,
    /** Copies the contents of the block back to the buffers. @throws ERR_TSR_BUFFER */
    unpack: () => {
      for (const { buffer, part } of parts) {
        if (buffer.byteLength !== part.length) throw detachedError(operation)
        bytesOf(buffer).set(part)
      }
    },
    free: () => {
      arena.releaseBytes(at)
    },
  }
}

function bytesOf({ buffer, byteOffset, byteLength }: AnyTypedArray): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength)
}
