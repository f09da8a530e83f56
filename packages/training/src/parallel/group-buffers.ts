import type { PersistentOperation, ProcessGroup, Work } from '@tsrun/distributed'

/**
 * Allocates float32 buffers with undefined contents in the group's arena. If one allocation fails,
 * frees the buffers that were already allocated. Free each buffer with `freeAfter`.
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

/** Frees a buffer as soon as the operation that uses it, if any, has ended. */
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

/** Frees a prepared operation and its buffers as soon as none of its runs is in progress. */
export function freeAfterRun(operation: PersistentOperation, freeBuffers?: () => void): void {
  const free = (): void => {
    operation.free()
    freeBuffers?.()
  }
  if (operation.isCompleted()) free()
  else void operation.done().then(free, free)
}
