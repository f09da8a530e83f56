import { backends } from '#backends'
import { registerCpu } from '#tfjs'
import { tsrError } from '@tsrun/core'
import type { TensorBackend } from '../tfjs/backend.ts'
import { genericBackend } from '../tfjs/generic-backend.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'

/** Returns the current backend of TensorFlow.js. @throws ERR_TSR_BACKEND_NOT_LOADED */
export function currentBackend(): TensorBackend {
  return backends[tf.engine().backendName] ?? unknownBackend()
}

function unknownBackend(): TensorBackend {
  const { backendName, registryFactory } = tf.engine()
  // If the script registered a backend itself, TensorFlow.js initializes it at its first use.
  const isLoaded = Boolean(backendName) || Object.keys(registryFactory).length > 0
  if (!isLoaded) throw tsrError('ERR_TSR_BACKEND_NOT_LOADED', {})
  return genericBackend
}

/** Whether JavaScript can access the memory of tensors, so that values need not be fetched. */
export function isHostAccessible(): boolean {
  return currentBackend().view !== undefined
}

/** Runs operations that depend only on input shapes, by `TensorBackend.repeat`. The caller owns the results. */
export function repeated(
  name: string,
  inputs: readonly Tensor[],
  compute: (inputs: readonly Tensor[]) => Tensor[],
): Tensor[] {
  const run = () => tf.tidy(() => compute(inputs).map((tensor) => tf.keep(tensor)))
  return currentBackend().repeat?.(name, inputs, run) ?? run()
}

/** Runs a computation that leaves no tensors. Uses the cpu backend if tensors are on a device. */
export function onHostBackend(compute: () => void): void {
  if (isHostAccessible()) {
    compute()
    return
  }
  const before = tf.getBackend()
  registerCpu()
  // Both backends are initialized, so setBackend switches synchronously.
  void tf.setBackend('cpu')
  try {
    compute()
  } finally {
    void tf.setBackend(before)
  }
}
