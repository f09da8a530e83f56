import { tsrError, where } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { refuseNested } from '../autograd/tape.ts'
import { describe } from '../model/describe.ts'
import { tf } from '../tfjs/tfjs.ts'

const processGroup = where<ProcessGroup>(
  (value) => {
    const { rank, size } = (value as Partial<ProcessGroup> | undefined | null) ?? {}
    return typeof rank === 'number' && typeof size === 'number'
  },
  'a process group, as initProcessGroup() returns, or an axis of a mesh',
  describe,
)

/**
 * Checks that an argument is a process group.
 *
 * @param name - the name of the argument
 * @throws ERR_TSR_ARGUMENT
 */
export function checkGroup(
  group: Pick<ProcessGroup, 'rank' | 'size'> | undefined,
  name = 'group',
): void {
  processGroup.check(name, group)
}

/**
 * Checks that a pass may block while it waits for other ranks.
 *
 * @param place - the pass that contains the collective, for error messages
 * @throws ERR_TSR_BACKEND when the backend can only read values asynchronously; ERR_TSR_NO_GRADIENT within
 *   the function of another gradient
 */
export function checkBackendBlocks(place = 'a forward or backward pass'): void {
  refuseNested('a layer that waits for other ranks')
  const backend = tf.getBackend()
  if (backend !== 'webgpu') return
  const way = 'recordSegments awaits the collectives of columnParallel and rowParallel layers'
  const reason = `it cannot wait for a collective inside ${place}; in a chain of layers ${way}`
  throw tsrError('ERR_TSR_BACKEND', { backend, reason })
}
