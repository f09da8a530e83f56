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

/** Frees a prepared operation and its buffers as soon as no run of it is in progress. */
export function freeAfterRun(operation: PersistentOperation, freeBuffers?: () => void): void {
  const free = (): void => {
    operation.free()
    freeBuffers?.()
  }
  if (operation.isCompleted()) free()
  else void operation.done().then(free, free)
}
