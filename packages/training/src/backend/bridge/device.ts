import { tf } from '../tfjs.ts'
import type { DeviceBackend } from '../webgpu/dawn.ts'
import { fetchedBridge } from './array.ts'
import type { Bridge } from './bridge.ts'
import { countCopy } from './copies.ts'

/**
 * webgpu: from the device into mapped memory without the CPU, from there into a new array, and into
 * its place. Into a tensor: into an array, and from it into mapped memory when an operation needs it.
 */
export const deviceBridge: Bridge = {
  peek({ dataId }) {
    const { tensorMap } = tf.engine().backend as unknown as DeviceBackend
    return tensorMap.get(dataId).values ?? undefined
  },
  async writeTo({ dataId }, target) {
    const values = (await tf.engine().read(dataId)) as typeof target
    countCopy('toHost', target.byteLength)
    target.set(values)
    countCopy('toHost', target.byteLength)
  },
  create: fetchedBridge.create,
}
