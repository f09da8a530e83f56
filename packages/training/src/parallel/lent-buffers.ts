import type { ProcessGroup, Work } from '@tsrun/distributed'

/** Float32 buffers of a group's arena, all or none: give each to `freeAfter`. */
export function lend(group: ProcessGroup, lengths: readonly number[]): Float32Array[] {
  const buffers: Float32Array[] = []
  try {
    for (const length of lengths) buffers.push(group.alloc('float32', length))
    return buffers
  } catch (error) {
    for (const buffer of buffers) group.free(buffer)
    throw error
  }
}

/** Frees a buffer as soon as the operation that uses it, if any, has ended, well or not. */
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
