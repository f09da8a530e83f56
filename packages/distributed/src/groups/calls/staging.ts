import { tsrError } from '@tsrun/core'
import type { Arena } from '../../arena/arena.ts'
import type { AnyTypedArray } from '../../dtype.ts'

/** Where in the arena the engine finds a caller's buffer. */
interface Placed {
  readonly at: number
  readonly isStaged: boolean
  /** Copies a staged result back to the caller's buffer. */
  copyBack(operation: string): void
  free(): void
}

/** Places a buffer: those of the arena stay where they are, others get a copy there. */
function place(arena: Arena, buffer: AnyTypedArray, hasInput: boolean, needsCopy = false): Placed {
  if (!needsCopy && arena.contains(buffer)) {
    return {
      at: buffer.byteOffset,
      isStaged: false,
      copyBack: () => undefined,
      free: () => undefined,
    }
  }
  const { bytes } = arena.heap
  const { byteLength } = buffer
  const at = arena.allocBytes(buffer.byteLength)
  const theirs = new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength)
  if (hasInput) bytes.set(theirs, at)
  return {
    at,
    isStaged: true,
    copyBack: (operation) => {
      if (theirs.length !== byteLength) {
        const problem = 'the buffer was detached while the operation was under way'
        throw tsrError('ERR_TSR_BUFFER', { operation, problem })
      }
      theirs.set(bytes.subarray(at, at + byteLength))
    },
    free: () => {
      arena.releaseBytes(at)
    },
  }
}

/**
 * Places the buffers of a call: both at one place where they are the same, or one is missing. With
 * `changesInput` an input of its own is placed in a copy.
 */
function placeBoth(
  arena: Arena,
  input: AnyTypedArray | undefined,
  output: AnyTypedArray | undefined,
  changesInput: boolean,
): [Placed | undefined, Placed | undefined] {
  const first = input ?? output
  if (first === undefined) return [undefined, undefined]
  const placedFirst = place(arena, first, input !== undefined, changesInput && output !== first)
  if (output === undefined || output === first) return [placedFirst, placedFirst]
  try {
    return [placedFirst, place(arena, output, false)]
  } catch (error) {
    placedFirst.free()
    throw error
  }
}

/** Places the buffers of a call; when there is no room for them the table is given back too. */
export function placeOrFree(
  arena: Arena,
  input: AnyTypedArray | undefined,
  output: AnyTypedArray | undefined,
  table: Float64Array | undefined,
  changesInput: boolean,
): [Placed | undefined, Placed | undefined] {
  try {
    return placeBoth(arena, input, output, changesInput)
  } catch (error) {
    if (table !== undefined) arena.releaseBytes(table.byteOffset)
    throw error
  }
}

/** The numbers of a call where the engine can read them, and write others. */
export function placeTable(
  arena: Arena,
  numbers: readonly number[] | undefined,
): Float64Array | undefined {
  if (numbers === undefined) return undefined
  const bytes = numbers.length * Float64Array.BYTES_PER_ELEMENT
  const { buffer } = arena.heap.doubles
  const table = new Float64Array(buffer, arena.allocBytes(bytes), numbers.length)
  table.set(numbers)
  return table
}
