import type { PersistentOperation, ProcessGroup, Work } from '@tsrun/distributed'

/** Frees a buffer as soon as the operation that uses it, if any, has ended. */
export function freeAfter(
  work: Work<unknown> | undefined,
  group: ProcessGroup,
  buffer: Parameters<ProcessGroup['free']>[0],
): void {
  const free = () => {
    group.free(buffer)
  }
  if (work === undefined || work.isCompleted()) free()
  else void work.then(free, free)
}

/** Frees a prepared operation and its buffers as soon as none of its runs is in progress. */
export function freeAfterRun(operation: PersistentOperation, freeBuffers?: () => void): void {
  const free = () => {
    operation.free()
    freeBuffers?.()
  }
  if (operation.isCompleted()) free()
  else void operation.done().then(free, free)
}
