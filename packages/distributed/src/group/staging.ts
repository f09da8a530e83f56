import type { Arena } from '../arena/arena.ts'
import type { AnyTypedArray } from '../dtype.ts'

/** Where in the arena the engine finds a caller's buffer. */
interface Placed {
  readonly at: number
  readonly isStaged: boolean
  /** Copies a staged result back to the caller's buffer. */
  copyBack(): void
  free(): void
}

/** Places a buffer: those of the arena stay where they are, others get a copy there. */
function place(arena: Arena, buffer: AnyTypedArray, hasInput: boolean): Placed {
  if (arena.contains(buffer)) {
    return {
      at: buffer.byteOffset,
      isStaged: false,
      copyBack: () => undefined,
      free: () => undefined,
    }
  }
  const { bytes } = arena.heap
  const at = arena.allocBytes(buffer.byteLength)
  const theirs = new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength)
  if (hasInput) bytes.set(theirs, at)
  return {
    at,
    isStaged: true,
    copyBack: () => {
      theirs.set(bytes.subarray(at, at + buffer.byteLength))
    },
    free: () => {
      arena.releaseBytes(at)
    },
  }
}

/** Places the buffers of a call: both at one place where they are the same, or one is missing. */
export function placeBoth(
  arena: Arena,
  input: AnyTypedArray | undefined,
  output: AnyTypedArray | undefined,
): [Placed | undefined, Placed | undefined] {
  const first = input ?? output
  if (first === undefined) return [undefined, undefined]
  const placedFirst = place(arena, first, input !== undefined)
  if (output === undefined || output === first) return [placedFirst, placedFirst]
  try {
    return [placedFirst, place(arena, output, false)]
  } catch (error) {
    placedFirst.free()
    throw error
  }
}
