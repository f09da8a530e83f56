import type { PersistentOperation, ProcessGroup, Work } from '@tsrun/distributed'
import { dtypeRule, type HostArray } from '../tfjs/host-arrays.ts'

/**
 * Allocates buffers with undefined contents in the group's arena. If one allocation fails, frees
 * the buffers that were already allocated. Free each buffer with `freeAfter`.
 *
 * @throws ERR_TSR_ARGUMENT for a dtype other than float32, int32 and bool; ERR_TSR_ARENA_EXHAUSTED
 */
export function allocateAll(
  group: ProcessGroup,
  dtype: string,
  lengths: readonly number[],
): HostArray[] {
  const known = dtypeRule.check('the dtype of a tensor', dtype)
  const buffers: HostArray[] = []
  try {
    for (const length of lengths) buffers.push(group.allocUnsafe(known, length))
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
