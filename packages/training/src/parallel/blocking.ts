import { tsrError } from '@tsrun/core'
import { tf } from '../backend/tensorflow.ts'

/** For passes that wait for other ranks. @throws ERR_TSR_BACKEND where values can be read asynchronously only */
export function blockingBackend(): void {
  const backend = tf.getBackend()
  if (backend !== 'webgpu') return
  const reason = 'it cannot wait for a collective inside a forward or backward pass'
  throw tsrError('ERR_TSR_BACKEND', { backend, reason })
}
