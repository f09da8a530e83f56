import { core } from '#tfjs'
import type {
  KernelFunc,
  NamedAttrMap,
  NamedTensorMap,
  Tensor,
  TensorInfo,
} from '@tensorflow/tfjs-core'
import { tsrError } from '@tsrun/core'

/** The one TensorFlow.js of this process, without its layers, converters and browser backends. */
export const tf = core

export type { Tensor } from '@tensorflow/tfjs-core'

/** Whether it is a tensor, of this TensorFlow.js or of another copy of it. */
export function isTensor(value: unknown): value is Tensor {
  return typeof (value as Partial<Tensor> | null | undefined)?.dataSync === 'function'
}

explainMissingBackend(tf.engine() as unknown as Registry)

/** The part of TensorFlow.js's engine that finds a backend when the first tensor is made. */
interface Registry {
  readonly registryFactory: object
  initializeBackendsAndReturnBest: () => unknown
}

/** TensorFlow.js says only that there is no backend, not how one is loaded. */
function explainMissingBackend(engine: Registry): void {
  const initialize = engine.initializeBackendsAndReturnBest.bind(engine)
  engine.initializeBackendsAndReturnBest = () => {
    if (Object.keys(engine.registryFactory).length === 0) {
      throw tsrError('ERR_TSR_BACKEND_NOT_LOADED', {})
    }
    return initialize()
  }
}

/** Replaces a kernel of a backend. `make` gets the original one, for the calls that ours does not handle. */
export function replaceKernel(
  kernelName: string,
  backendName: string,
  make: (original: KernelFunc) => KernelFunc,
): void {
  const original = tf.getKernel(kernelName, backendName)
  tf.unregisterKernel(kernelName, backendName)
  tf.registerKernel({ ...original, kernelFunc: make(original.kernelFunc) })
}

/** Runs a kernel without the operation around it: there are no checks and no entry on the tape. */
export function runKernel(
  name: string,
  inputs: Readonly<Record<string, TensorInfo>>,
  attrs: NamedAttrMap = {},
): Tensor {
  return tf.engine().runKernel(name, inputs as unknown as NamedTensorMap, attrs)
}
