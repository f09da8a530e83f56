import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import type { Module } from '../model/module.ts'
import type { Operation } from '../model/operation.ts'
import type { Recording } from '../model/recording.ts'
import type { HostArray, HostDType } from './host-arrays.ts'

/** The current tensor backend. */
export interface Backend extends BackendFacts {
  readonly name: BackendName
}

/** Properties of a loaded backend. */
export interface BackendFacts {
  /** The name of the device that computes: `CPU`, or the name of a GPU. */
  readonly device: string
  /** The number of threads of this process that compute on the CPU. */
  readonly threads: number
  /** For `wasm`: the BLAS that computes matrix products. Undefined if WebAssembly computes them. */
  readonly blas?: string | undefined
}

/** Options of `loadBackend`. */
export interface BackendOptions {
  /**
   * For `webgpu`: the name of an adapter, or a part of it. The default is the variable
   * TSRUN_WEBGPU_ADAPTER, else the best adapter of this machine.
   */
  readonly adapter?: string
  /**
   * For `wasm`: how to compute matrix products. With `exact`, WebAssembly computes them, with the same bits
   * on every machine and in every layout. With `fast`, a BLAS of this machine computes them if there is one,
   * and WebAssembly fuses multiplications with additions if it can. The default is the variable TSRUN_MATH;
   * else `fast` if there is a BLAS, and `exact` if there is none.
   */
  readonly math?: 'exact' | 'fast' | undefined
}

/** The name of a backend that `loadBackend` loads. */
export type BackendName = 'tensorflow' | 'webgpu' | 'wasm' | 'cpu'

/**
 * What this package needs from a backend in addition to the operations of TensorFlow.js: access to the
 * memory of tensors, and optional faster computations. Each backend implements the interface in its
 * folder, or in a package of its own. `currentBackend()` returns the current one.
 */
export interface TensorBackend {
  /** A read-only view of a tensor, valid until the next allocation. Absent if values are on a device. */
  readonly view?: (tensor: TensorInfo) => HostArray

  /**
   * Returns the values of a tensor, which must not be written to. Undefined if the values can only be
   * read asynchronously.
   */
  readonly peek?: (tensor: TensorInfo) => HostArray | undefined

  /**
   * Copies the values of a tensor into `target`, an array of the right type and size. Returns a promise
   * if the backend can only fetch values asynchronously. The caller must not use `tensor` and `target`
   * until the promise settles.
   */
  readonly writeTo: (tensor: TensorInfo, target: HostArray) => void | Promise<void>

  /**
   * Creates a tensor from the values that `fill` writes into an array. If the host can access tensors,
   * the array is the memory of the tensor itself. Calls `fill` once, before returning.
   */
  readonly create: (
    shape: readonly number[],
    dtype: HostDType,
    fill: (values: HostArray) => void,
  ) => Tensor

  /**
   * Creates a tensor from an array if that takes fewer copies than `create`; otherwise returns undefined.
   */
  readonly createFrom?: (
    source: HostArray,
    shape: readonly number[],
    dtype: HostDType,
  ) => Tensor | undefined

  /** Returns the memory of a float32 tensor. Absent if the backend cannot release memory temporarily. */
  readonly storageOf?: (tensor: Tensor) => Storage

  /**
   * Records operations on `x`, which has values, without the tape and without a tensor for each small
   * operation. Returns undefined if these operations need the tape.
   *
   * @param isWhole - whether these are all operations of a module, not only the last ones
   */
  readonly recordOperations?: (
    operations: readonly Operation[],
    x: Tensor,
    needsInputGradient: boolean,
    isWhole: boolean,
  ) => OperationPasses | undefined

  /** x W + b [..., outputs], with a ReLU if `relu`. The weight has the matrix W [inputs, outputs] in memory. */
  readonly linear?: (operands: LinearOperands, relu: boolean) => LazyOperation<keyof LinearOperands>

  /**
   * Returns `weight` times the sum of the cross-entropies of logits [..., classes] and int32 labels
   * [...], and the gradient of the logits. The open tf.tidy owns the loss. The caller disposes the
   * gradient. Returns undefined if the backend does not support the targets.
   */
  readonly crossEntropy?: (
    logits: Tensor,
    labels: Tensor,
    weight: number,
    targets: LabelTargets,
  ) => EvaluatedLoss | undefined

  /**
   * Layer norm over the last axis with the parameters `scale` and `shift`. Without `shift`: RMSNorm.
   * `gradients` returns one gradient per tensor argument, in order.
   */
  readonly normalize?:
    ((epsilon: number, x: Tensor, scale: Tensor, shift?: Tensor) => Differentiable) | undefined

  /** Computes x sigmoid(linear x + cubic x^3). Both factors are at least 0. No second derivatives. */
  readonly gate?: (x: Tensor, linear: number, cubic: number) => Differentiable

  /** Returns `dy` where the output of a ReLU is positive, else 0, also for NaN. Not differentiable. */
  readonly reluGradient?: (dy: Tensor, output: Tensor) => Tensor

  /** Whether the kernel MaxPoolGrad supports `WindowAttributes.isRectified`. */
  readonly rectifiesPooling?: boolean

  /**
   * Batch norm of x [..., channels] with the statistics of its rows, at least one. `gradients` returns
   * the gradients of `x`, `weight` and `bias`. Absent if batch norm by `columns` is as fast.
   */
  readonly batchNorm?: (
    inputs: Each<'x' | 'weight' | 'bias', Tensor>,
    options: BatchNormFactors,
  ) => Differentiable & Each<'mean' | 'variance', Tensor>

  readonly columns?: ColumnPasses

  /** Returns x + y for equal shapes, outside of any tf.tidy; the caller disposes it. */
  readonly sumOf?: (x: Tensor, y: Tensor) => Tensor

  /** Sums the squares of float32 values in double precision, with the bits of a sum in JavaScript. */
  readonly sumOfSquares?: (x: Tensor) => number

  /** Multiplies float32 values in place, or disposes `x` and returns another tensor. */
  readonly scale?: (x: Tensor, factor: number) => Tensor

  /**
   * Causal attention of rows [batch, length, 3 x heads x size], which are the queries, keys and values of
   * all heads. The result is [batch, length, heads x size].
   */
  readonly attention?: ((rows: Tensor, size: number) => Differentiable) | undefined

  /**
   * Copies the keys and values of `rows` [batch, length, 3 x heads x size] into the memory of a cache
   * [batch, capacity, 2 x heads x size] from position `before` on, and returns the causal attention
   * [batch, length, heads x size] to all positions up to the last copied one.
   */
  readonly cachedAttention?: (rows: Tensor, size: number, cache: Tensor, before: number) => Tensor

  /**
   * Records a pass of a repeatable module (`Module.isRepeatable`) with fewer calls of the backend than
   * the tape needs.
   *
   * @param record - records a pass on the tape
   * @returns undefined if the pass must be recorded in another way
   */
  readonly repeatPass?: (
    module: Module,
    x: Tensor,
    needsInputGradient: boolean,
    record: (x: Tensor) => Recording,
  ) => Recording | undefined

  /**
   * Runs a computation with fewer calls of the backend. Calls with the same name and input shapes must
   * run the same operations with the same numbers, and must not read values.
   *
   * @param run - runs the computation on the inputs
   * @param numbers - numbers that depend on more than the name and the shapes
   * @returns tensors owned by the caller; undefined if the caller must call `run`
   */
  readonly repeat?: (
    name: string,
    inputs: readonly Tensor[],
    run: () => Tensor[],
    numbers?: readonly number[],
  ) => Tensor[] | undefined

  /** Makes all later matrix products use `math: 'exact'`. */
  readonly makeExact?: () => void

  /** Returns the optimizer steps in place; undefined if the device does not support them. */
  readonly updatesInPlace?: () => UpdatesInPlace | undefined
}

/**
 * `mean` and `variance` are the running statistics. `batchNorm` returns the next ones, in which the mean and
 * the unbiased variance of the batch have the weight `momentum`.
 */
export interface BatchNormFactors extends Each<'mean' | 'variance', Tensor> {
  readonly epsilon: number
  readonly momentum: number
}

/** Passes over the columns of tensors [..., columns]. */
export interface ColumnPasses {
  /**
   * Returns the sums of y, then the sums of y (x - center), of each column. With y = x, a center close to
   * the mean makes sums in single precision nearly as exact as in double precision.
   */
  sums(y: Tensor, x: Tensor, center: Float64Array): Float64Array

  /**
   * Returns a y + b (x - center) + c with numbers for each column. The open tf.tidy or recorded pass owns
   * the result.
   */
  combine(
    y: Tensor,
    x: Tensor,
    numbers: Readonly<Record<'a' | 'b' | 'c' | 'center', Float64Array>>,
  ): Tensor
}

/** The target of class k is (1 - labelSmoothing) [k = label] + labelSmoothing / classes. */
export interface LabelTargets {
  /** The loss of rows with this label is 0. */
  readonly ignoreIndex: number | undefined
  readonly labelSmoothing: number
}

/** The result of an operation and a function for its gradients. The open tf.tidy owns all tensors. */
export interface Differentiable {
  readonly value: Tensor
  /** The tensors to pass to `gradients`. They may include inputs. */
  readonly saved: Tensor[]
  /** Returns the gradient of each input. */
  readonly gradients: (dy: Tensor, saved: Tensor[]) => Tensor[]
}

export type Each<K extends string, T> = Readonly<Record<K, T>>

/** An operation with custom gradients, for `withLazyGradients`. The open tf.tidy owns all tensors. */
export interface LazyOperation<K extends string> {
  forward(): Tensor
  /** The inputs that `gradients` needs; default all. */
  readonly saves?: readonly K[]
  /** Whether `gradients` needs the output; default false. */
  readonly savesOutput?: boolean
  /**
   * Returns one function per input, which computes the gradient of that input. The functions are called
   * in order, and only for requested gradients.
   *
   * @param inputs - the saved inputs of the forward pass
   * @param output - the result of the forward pass, if it is saved
   */
  gradients(dy: Tensor, inputs: Each<K, Tensor>, output?: Tensor): Each<K, () => Tensor>
}

/** x [..., inputs], a weight [inputs, ...], and a bias with the other axes of the weight. */
export type LinearOperands = Each<'x' | 'weight' | 'bias', Tensor>

/** A loss and the gradient of the logits. The caller disposes the gradient. */
export interface EvaluatedLoss {
  readonly value: Tensor
  readonly gradient: Tensor
}

/**
 * The memory of a tensor, which can be freed temporarily while the tensor exists, even if clones,
 * reshaped tensors or a recording share the memory. Nothing may read the tensor in the meantime.
 */
export interface Storage {
  free(): void
  /** After `free`: allocates memory again and copies `values` into it. */
  fill(values: Float32Array): void
  /** After `free`: gives up the memory for good, so that the tensor can be disposed. */
  abandon(): void
}

/**
 * A recorded forward pass of operations. Callers must check all arguments. The backward pass runs while the
 * operations still have the parameters of the forward pass.
 */
export type OperationPasses = Required<Recording>

/**
 * A gradient: a tensor, or an array of its values in row-major order. The caller still owns it after the
 * call.
 */
export type Gradient = Tensor | Float32Array

/**
 * Receives the updated tensors, in order. If an update fails, receives tensors with the previous values.
 */
export type Store = (tensors: Tensor[]) => void

export interface AdamFactors {
  readonly learningRate: number
  readonly betas: readonly [number, number]
  /** The number of this update, starting with 1. */
  readonly step: number
  readonly epsilon: number
  /** The factor of the value before the step, for decoupled weight decay. */
  readonly keep: number
}

/**
 * Optimizer steps in place: each reads and writes memory only once. If other tensors share the values of
 * an updated tensor, the values are copied first. Each method disposes the tensors that it updates, and
 * passes tensors of the same shapes to `store`.
 */
export interface UpdatesInPlace {
  /** value = value - rate gradient */
  descend(value: Tensor, gradient: Gradient, rate: number, store: Store): void

  /** velocity = momentum velocity + gradient, value = value - rate velocity */
  descendWithMomentum(
    tensors: readonly [value: Tensor, velocity: Tensor],
    gradient: Gradient,
    factors: { readonly rate: number; readonly momentum: number },
    store: Store,
  ): void

  /** Adam, as torch.optim.Adam defines it. */
  adam(
    tensors: readonly [value: Tensor, mean: Tensor, square: Tensor],
    gradient: Gradient,
    factors: AdamFactors,
    store: Store,
  ): void

  /** Call after updating all parameters, to release tensors that were kept for the whole step. */
  finish(): void
}
