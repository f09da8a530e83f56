import { tsrError } from '@tsrun/core'
import { tf } from '../tfjs/tfjs.ts'

/**
 * For passes that wait for other ranks.
 *
 * @param place - what the collective is inside of
 * @throws ERR_TSR_BACKEND where values can be read asynchronously only
 */
export function blockingBackend(place = 'a forward or backward pass'): void {
  const backend = tf.getBackend()
  if (backend !== 'webgpu') return
  const way = 'recordSegments awaits those of columnParallel and rowParallel layers in a chain'
  const reason = `it cannot wait for a collective inside ${place}; ${way}`
  throw tsrError('ERR_TSR_BACKEND', { backend, reason })
}
