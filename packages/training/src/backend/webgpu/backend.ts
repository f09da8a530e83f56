import type { TensorBackend } from '../../tfjs/backend.ts'
import { genericBackend } from '../../tfjs/generic-backend.ts'
import { countCopy } from '../../tfjs/host-arrays.ts'
import { tf } from '../../tfjs/tfjs.ts'
import type { WebGpuTensors } from './device.ts'

/**
 * Reading a tensor takes two copies on the CPU: from mapped memory into a new array, and from there to
 * the target. Creating a tensor takes one copy into an array, and one into mapped memory when an
 * operation first needs the tensor.
 */
export const webgpuBackend: TensorBackend = {
  peek({ dataId }) {
    const { tensorMap } = tf.engine().backend as unknown as WebGpuTensors
    return tensorMap.get(dataId).values ?? undefined
  },
  async writeTo({ dataId }, target) {
    const values = (await tf.engine().read(dataId)) as typeof target
    countCopy('toHost', target.byteLength)
    target.set(values)
    countCopy('toHost', target.byteLength)
  },
  create: genericBackend.create,
}
