import { tf } from '../tfjs.ts'
import { arrayBridge, fetchedBridge } from './array.ts'
import type { Bridge } from './bridge.ts'
import { deviceBridge } from './device.ts'
import { heapBridge } from './heap.ts'
import { tensorflowBridge } from './tensorflow.ts'

const bridges: Readonly<Record<string, Bridge>> = {
  wasm: heapBridge,
  cpu: arrayBridge,
  tensorflow: tensorflowBridge,
  webgpu: deviceBridge,
}

/** The bridge of the backend that is current. */
export function bridge(): Bridge {
  return bridges[tf.engine().backendName] ?? fetchedBridge
}

/** Whether the host reaches the memory of tensors, so that their values need no fetching. */
export function reachesTensors(): boolean {
  return bridge().view !== undefined
}
