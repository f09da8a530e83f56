// The methods of tensors, which `loadBackend` adds.
/// <reference types="@tensorflow/tfjs-core/dist/public/chained_ops/register_all_chained_ops.js" preserve="true" />
import { core } from '#tfjs'
import type {
  GradConfig,
  KernelConfig,
  NamedAttrMap,
  NamedTensorMap,
  Tensor,
  TensorInfo,
} from '@tensorflow/tfjs-core'
import { tsrError } from '@tsrun/core'

/**
 * The only copy of tfjs-core that this package uses, without layers, converters and browser backends.
 * `loadBackend` adds the chained methods of tensors.
 *
 * @example
 * await loadBackend()
 * const y = x.matMul(w).relu() // or: tf.relu(tf.matMul(x, w))
 */
export const tf = core

export type { Tensor } from '@tensorflow/tfjs-core'

/** Whether a value is a tensor, of this or another copy of TensorFlow.js. */
export function isTensor(value: unknown): value is Tensor {
  return typeof (value as Partial<Tensor> | null | undefined)?.dataSync === 'function'
}

/** The part of the engine that selects a backend when the first tensor is created. */
interface Registry {
  readonly registryFactory: object
  initializeBackendsAndReturnBest: () => unknown
}

// Replace the error for a missing backend by one that explains how to load a backend.
const registry = tf.engine() as unknown as Registry
const initialize = registry.initializeBackendsAndReturnBest.bind(registry)
registry.initializeBackendsAndReturnBest = () => {
  if (Object.keys(registry.registryFactory).length === 0) {
    throw tsrError('ERR_TSR_BACKEND_NOT_LOADED', {})
  }
  return initialize()
}

/** The arguments of a kernel call, with at least the inputs `K`. */
export interface KernelCall<K extends string = string, A = NamedAttrMap, B = unknown> {
  readonly inputs: Readonly<Record<K, TensorInfo> & Partial<Record<string, TensorInfo>>>
  readonly attrs: A
  readonly backend: B
}

/** The function that computes a kernel. */
export type Kernel<C> = (call: C) => TensorInfo | TensorInfo[]

/** Replaces a kernel of a backend, or adds it. The new one can delegate calls to the original. */
export function replaceKernel<C = KernelCall>(
  kernelName: string,
  backendName: string,
  make: (original: Kernel<C>) => Kernel<C>,
): void {
  const original = tf.getKernel(kernelName, backendName) as KernelConfig | undefined
  if (original !== undefined) tf.unregisterKernel(kernelName, backendName)
  const kernelFunc = make(original?.kernelFunc as never) as never
  tf.registerKernel({ ...original, kernelName, backendName, kernelFunc })
}

type Gradient = GradConfig['gradFunc']

/** Replaces the gradient of a kernel. `make` receives the original gradient. */
export function replaceGradient(kernelName: string, make: (original: Gradient) => Gradient): void {
  const { gradFunc, ...rest } = tf.getGradient(kernelName)
  tf.unregisterGradient(kernelName)
  tf.registerGradient({ ...rest, gradFunc: make(gradFunc) })
}

/** Runs a kernel without checks and without an entry on the tape. */
export function runKernel(
  name: string,
  inputs: Readonly<Record<string, TensorInfo>>,
  attrs: NamedAttrMap = {},
): Tensor {
  return tf.engine().runKernel(name, inputs as unknown as NamedTensorMap, attrs)
}
