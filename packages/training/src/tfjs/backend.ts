import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import type { Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import type { GradientListener, Recording } from '../model/recording.ts'
import type { HostArray, HostDType } from './host-arrays.ts'

/** A tensor backend that is loaded and current. */
export interface Backend extends BackendFacts {
  readonly name: BackendName
}

/** What a backend reports about itself when it is loaded. */
export interface BackendFacts {
  /** The human-readable name of the device that computes: `CPU`, or the name of a GPU. */
  readonly device: string
  /** The number of threads of this process that compute on the CPU. */
  readonly threads: number
}

export interface BackendOptions {
  /**
   * For `webgpu`: the name of an adapter, or a part of it. The default is the variable
   * TSRUN_WEBGPU_ADAPTER, else the best adapter of this machine.
   */
  readonly adapter?: string
}

export type BackendName = 'tensorflow' | 'webgpu' | 'wasm' | 'cpu'

/**
 * What this package uses of a backend beyond the operations of TensorFlow.js: access to the memory of
 * tensors and, where the backend has them, faster ways to compute something. Each backend implements
 * it in its folder; `currentBackend()` returns the one in use.
 */
export interface TensorBackend {
  /**
   * The memory of a tensor itself, where the host can access it. The view is valid until the next
   * allocation and must not be written to. Absent where values have to be fetched.
   */
  readonly view?: (tensor: TensorInfo) => HostArray

  /**
   * The values of a tensor if they can be read synchronously; undefined if they are on a device that
   * answers asynchronously. They must not be written to.
   */
  readonly peek?: (tensor: TensorInfo) => HostArray | undefined

  /**
   * Copies the values of a tensor into `target`, which has the right type and size. A backend that can
   * only fetch values asynchronously returns a promise; neither argument may be used until it settles.
   */
  readonly writeTo: (tensor: TensorInfo, target: HostArray) => void | Promise<void>

  /**
   * Makes a tensor from the values that `fill` writes into an array of its size. That array is the
   * memory of the tensor where the host can access it. `fill` is called once, before this returns.
   */
  readonly create: (
    shape: readonly number[],
    dtype: HostDType,
    fill: (values: HostArray) => void,
  ) => Tensor

  /** Makes a tensor from an array, where that needs fewer copies than `create`; else undefined. */
  readonly createFrom?: (
    source: HostArray,
    shape: readonly number[],
    dtype: HostDType,
  ) => Tensor | undefined

  /** The memory of a float32 tensor apart from the tensor, where it can be released for a while. */
  readonly storageOf?: (tensor: Tensor) => Storage

  /** Runs linear layers forward, without a tensor for each small operation. */
  readonly linearPasses?: (
    layers: readonly LinearLayer[],
    x: Tensor,
    needsInputGradient: boolean,
  ) => LinearPasses

  /**
   * The sum of the cross-entropies of logits [..., classes] and int32 labels [...], times
   * `weight`, and its gradient. The loss belongs to the open scope; the caller disposes the gradient.
   */
  readonly crossEntropy?: (logits: Tensor, labels: Tensor, weight: number) => EvaluatedLoss

  /**
   * Records a pass of a module that runs the same operations each time, in fewer calls than the tape.
   *
   * @param record - records a pass on the tape
   * @returns undefined where the pass is to be recorded in another way
   */
  readonly repeatPass?: (
    module: Module,
    x: Tensor,
    needsInputGradient: boolean,
    record: (x: Tensor) => Recording,
  ) => Recording | undefined

  /**
   * Runs a computation in fewer calls. In all calls with this name and inputs of these shapes, it runs the
   * same operations with the same numbers, and reads no values.
   *
   * @param run - runs it with the inputs
   * @param numbers - those that depend on more than the name and the shapes
   * @returns tensors of the caller; undefined where it is to be run
   */
  readonly repeat?: (
    name: string,
    inputs: readonly Tensor[],
    run: () => Tensor[],
    numbers?: readonly number[],
  ) => Tensor[] | undefined

  /** Optimizer steps in place; undefined where the device cannot make them. */
  readonly updatesInPlace?: () => UpdatesInPlace | undefined
}

/** A loss, and its gradient, which the caller disposes. */
export interface EvaluatedLoss {
  readonly value: Tensor
  readonly gradient: Tensor
}

/**
 * The memory of a tensor apart from the tensor: it can be freed for a while, unnoticed by a backward
 * pass that has saved the tensor, a clone of it or a reshaped one. Meanwhile nothing may read it.
 */
export interface Storage {
  free(): void
  /** After `free`: allocates memory again and copies these values into it. */
  fill(values: Float32Array): void
  /** After `free`: gives the memory up for good, so that the tensor can be disposed. */
  abandon(): void
}

/** y = activation(x W + b) */
export interface LinearLayer {
  readonly weight: Parameter
  readonly bias: Parameter
  readonly activation: 'linear' | 'relu'
}

/** Linear layers in a row after their forward pass. The caller has checked all arguments. */
export interface LinearPasses {
  readonly output: Tensor

  /** To be called at most once, while the layers have the parameters of the forward pass. */
  backward(dy: Tensor, onGradient: GradientListener): Tensor | undefined

  /** The halves of `backward`, to be called one after the other, each at most once. */
  backwardInput(dy: Tensor): Tensor | undefined
  backwardParameters(onGradient: GradientListener): void

  /** Frees the output and what was saved; to be called once. */
  dispose(): void
}

/** A tensor, or its values in row-major order. The caller still owns it after the call. */
export type Gradient = Tensor | Float32Array

/** Gets the updated tensors, in their order; if an update fails, the former values. */
export type Store = (tensors: Tensor[]) => void

export interface AdamFactors {
  readonly learningRate: number
  readonly betas: readonly [number, number]
  /** The number of the update; the first is 1. */
  readonly step: number
  readonly epsilon: number
}

/**
 * Optimizer steps that read and write memory once, in place where nothing else refers to the values of
 * a tensor. Each method disposes the tensors that it updates and passes others of the same shapes to
 * `store`.
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

  /** To be called after the step of all parameters: releases the values of the last one. */
  finish(): void
}
