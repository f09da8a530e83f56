import type { ProcessGroup, Work } from '@tsrun/distributed'

/** Lends float32 buffers of a group's arena to `use`; they go back whatever becomes of it. */
export function withBuffers<T>(
  group: ProcessGroup,
  lengths: readonly number[],
  use: (...buffers: Float32Array[]) => T,
): T {
  const buffers: Float32Array[] = []
  try {
    for (const length of lengths) buffers.push(group.alloc('float32', length))
    return use(...buffers)
  } finally {
    for (const buffer of buffers) group.free(buffer)
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
