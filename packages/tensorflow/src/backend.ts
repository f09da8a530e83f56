import {
  countCopy,
  type EvaluatedLoss,
  genericBackend,
  type HostArray,
  type HostDType,
  type LabelTargets,
  sizeOf,
  type Storage,
  type Tensor,
  type TensorBackend,
  tf,
} from '@tsrun/training/backends'
import { currentEager, type Eager, type NodeBackend } from './eager.ts'
import type { Handle } from './binding-kernels.ts'
import { gate, reluGradient } from './activations.ts'
import { batchNorm, columns } from './batch-norm.ts'
import { recordOperations } from './linear.ts'
import { operations } from './passes.ts'
import { repeat, repeatPass } from './repeated.ts'
import { updatesInPlace } from './updates.ts'

/**
 * The tensorflow backend. If the binding has our kernels, float32 values take one copy each way on
 * the CPU, and one more through host memory on a GPU. The functions of tfjs-node would create an
 * array for each tensor, which the system must allocate and clear.
 */
export const tensorflowBackend: TensorBackend = {
  peek(tensor) {
    // Do not read tensors on a GPU, because each read would wait for the device.
    const eager = currentEager()!
    return eager.isOnHost || tensor.dtype !== 'float32' ? genericBackend.peek!(tensor) : undefined
  },
  writeTo(tensor, target) {
    const eager = currentEager()!
    const { dtype } = tensor
    // TensorFlow keeps int32 tensors in host memory.
    if (!eager.isOnHost && dtype !== 'int32') countCopy('toHost', target.byteLength)
    if (dtype === 'float32' && eager.copyOut(tensor, target as Float32Array)) {
      countCopy('toHost', target.byteLength)
    } else {
      void genericBackend.writeTo(tensor, target)
    }
  },
  create(shape, dtype, fill) {
    const staging = eagerFor(dtype)?.staging
    const size = sizeOf(shape)
    if (staging?.isFreeFor(size) !== true) return genericBackend.create(shape, dtype, fill)
    return createFrom(staging.filled(size, fill), shape, dtype)!
  },
  createFrom,
  storageOf,
  recordOperations,
  crossEntropy,
  sumOf,
  batchNorm,
  columns,
  get gate() {
    return operations()?.gate ?? gate
  },
  get normalize() {
    return operations()?.normalize
  },
  get attention() {
    return operations()?.attention
  },
  reluGradient,
  updatesInPlace,
  repeat,
  repeatPass,
}

function sumOf(x: Tensor, y: Tensor): Tensor {
  const eager = currentEager()!
  return eager.take(eager.add(x, y), x.shape)
}

function createFrom(
  source: HostArray,
  shape: readonly number[],
  dtype: HostDType,
): Tensor | undefined {
  const eager = eagerFor(dtype)
  if (eager === undefined) return undefined
  countCopy('toTensor', source.byteLength)
  return eager.take(eager.copyIn(source as Float32Array, shape), shape)
}

/** Returns undefined if tfjs-node would create an array to copy values of this dtype. */
function eagerFor(dtype: string): Eager | undefined {
  const eager = dtype === 'float32' ? currentEager() : undefined
  return eager?.isOnHost === true && eager.kernels === undefined ? undefined : eager
}

function storageOf({ dataId }: Tensor): Storage {
  const { binding, tensorMap } = tf.engine().backend as unknown as NodeBackend
  const data = tensorMap.get(dataId)!
  return {
    free() {
      if (data.id >= 0) binding.deleteTensor(data.id)
      data.id = -1
      data.values = null
    },
    fill(values) {
      // Copy the array, because TensorFlow takes it over.
      data.values = new Float32Array(values)
    },
    abandon: () => undefined,
  }
}

/** For a matrix on the CPU, the few separate operations are faster than a TensorFlow function call. */
function crossEntropy(
  logits: Tensor,
  labels: Tensor,
  weight: number,
  { ignoreIndex, labelSmoothing }: LabelTargets,
): EvaluatedLoss | undefined {
  if (ignoreIndex !== undefined || labelSmoothing > 0) return undefined
  const eager = currentEager()!
  if (eager.isOnHost && logits.rank === 2) return crossEntropyOfRows(eager, logits, labels, weight)
  const run = (): Tensor[] =>
    tf.tidy(() => {
      const rows = tf.reshape(logits, [labels.size, -1])
      const flat = tf.reshape(labels, [-1])
      const { value, gradient } = crossEntropyOfRows(eager, rows, flat, weight)
      const slopes = tf.reshape(gradient, logits.shape)
      gradient.dispose()
      return [tf.keep(value), tf.keep(slopes)]
    })
  const results = repeat('cross entropy', [logits, labels], run, [weight]) ?? run()
  const [value, gradient] = results as [Tensor, Tensor]
  const scoped = tf.clone(value)
  value.dispose()
  return { value: scoped, gradient }
}

/** Computes the cross-entropy with one TensorFlow operation, and scales its results. */
function crossEntropyOfRows(
  eager: Eager,
  logits: Tensor,
  labels: Tensor,
  weight: number,
): EvaluatedLoss {
  const { losses, gradient, isScaled } = eager.crossEntropy(logits, labels, weight)
  const loss = eager.sum(losses)
  eager.free(losses)
  const value = eager.takeScoped(scaled(eager, loss, weight), [])
  const slopes = isScaled ? gradient : scaled(eager, gradient, weight)
  return { value, gradient: eager.take(slopes, logits.shape) }
}

/** Returns `x` times `factor`. Frees `x`, unless the factor is 1 and the result is `x` itself. */
function scaled(eager: Eager, x: Handle, factor: number): Handle {
  if (factor === 1) return x
  const scalar = eager.scalar(factor)
  const product = eager.multiply(x, scalar)
  eager.free(scalar)
  eager.free(x)
  return product
}
