import type { Arena } from '../arena/arena.ts'
import type { AnyTypedArray } from '../dtype.ts'

/** Where in the arena the engine finds a caller's buffer. */
export interface Placed {
  readonly at: number
  readonly isStaged: boolean
  /** Copies a staged result back to the caller's buffer. */
  copyBack(): void
  free(): void
}

/** Places a buffer: those of the arena stay where they are, others get a copy there. */
export function place(arena: Arena, buffer: AnyTypedArray, hasInput: boolean): Placed {
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
