import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import type { Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import type { GradientListener, Recording } from '../model/recording.ts'
import type { HostArray, HostDType } from './host-arrays.ts'

/** The loaded, current tensor backend. */
export interface Backend extends BackendFacts {
  readonly name: BackendName
}

/** The facts that a backend reports when it is loaded. */
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
 * The interface to a backend beyond the operations of TensorFlow.js: access to the memory of tensors
 * and, if the backend has them, faster computations. Each backend implements it in its folder;
 * `currentBackend()` returns the current one.
 */
export interface TensorBackend {
  /**
   * Returns the memory of a tensor. The view is valid until the next allocation and must not be written
   * to. Absent if values have to be fetched.
   */
  readonly view?: (tensor: TensorInfo) => HostArray

  /**
   * Returns the values of a tensor if they can be read synchronously; undefined if they are on an
   * asynchronous device. They must not be written to.
   */
  readonly peek?: (tensor: TensorInfo) => HostArray | undefined

  /**
   * Copies the values of a tensor into `target`, which has the right type and size. A backend that can
   * only fetch values asynchronously returns a promise; neither argument may be used until it settles.
   */
  readonly writeTo: (tensor: TensorInfo, target: HostArray) => void | Promise<void>

  /**
   * Makes a tensor from the values that `fill` writes into an array of its size. If the host can access
   * tensors, that array is the memory of the tensor. `fill` is called once, before this returns.
   */
  readonly create: (
    shape: readonly number[],
    dtype: HostDType,
    fill: (values: HostArray) => void,
  ) => Tensor

  /** Makes a tensor from an array, if that needs fewer copies than `create`; else returns undefined. */
  readonly createFrom?: (
    source: HostArray,
    shape: readonly number[],
    dtype: HostDType,
  ) => Tensor | undefined

  /** Returns the memory of a float32 tensor, if it can be released temporarily. */
  readonly storageOf?: (tensor: Tensor) => Storage

  /** Runs linear layers forward, without a tensor for each small operation. */
  readonly linearPasses?: (
    layers: readonly LinearLayer[],
    x: Tensor,
    needsInputGradient: boolean,
  ) => LinearPasses

  /**
   * Returns the sum of the cross-entropies of logits [..., classes] and int32 labels [...], times
   * `weight`, and its gradient. The loss belongs to the open scope; the caller disposes the gradient.
   */
  readonly crossEntropy?: (logits: Tensor, labels: Tensor, weight: number) => EvaluatedLoss

  /**
   * Records a pass of a module that always runs the same operations, in fewer calls than the tape.
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
   * Runs a computation in fewer calls. All calls with one name and inputs of the same shapes must run
   * the same operations with the same numbers, and read no values.
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

  /** Optimizer steps in place; undefined if the device does not support them. */
  readonly updatesInPlace?: () => UpdatesInPlace | undefined
}

/** A loss and its gradient, which the caller disposes. */
export interface EvaluatedLoss {
  readonly value: Tensor
  readonly gradient: Tensor
}

/**
 * The memory of a tensor, separate from the tensor. It can be freed temporarily, even if a backward pass
 * has saved the tensor, a clone or a reshaped tensor. Nothing may read it in the meantime.
 */
export interface Storage {
  free(): void
  /** After `free`: allocates memory again and copies these values into it. */
  fill(values: Float32Array): void
  /** After `free`: gives up the memory permanently, so that the tensor can be disposed. */
  abandon(): void
}

/** y = activation(x W + b) */
export interface LinearLayer {
  readonly weight: Parameter
  readonly bias: Parameter
  readonly activation: 'linear' | 'relu'
}

/** A stack of linear layers after its forward pass. The caller has checked all arguments. */
export interface LinearPasses {
  readonly output: Tensor

  /** Call it at most once, while the layers still have the parameters of the forward pass. */
  backward(dy: Tensor, onGradient: GradientListener): Tensor | undefined

  /** The halves of `backward`. Call one after the other, each at most once. */
  backwardInput(dy: Tensor): Tensor | undefined
  backwardParameters(onGradient: GradientListener): void

  /** Frees the output and saved values. Call it once. */
  dispose(): void
}

/** A tensor, or its values in row-major order. The caller still owns it after the call. */
export type Gradient = Tensor | Float32Array

/** Receives the updated tensors, in order; if an update fails, the former values. */
export type Store = (tensors: Tensor[]) => void

export interface AdamFactors {
  readonly learningRate: number
  readonly betas: readonly [number, number]
  /** The number of the update; the first is 1. */
  readonly step: number
  readonly epsilon: number
}

/**
 * Optimizer steps that read and write memory once, in place if nothing else refers to the values of a
 * tensor. Each method disposes the tensors that it updates and passes tensors of the same shapes to
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

  /** Call it after the step of all parameters: releases the values of the last one. */
  finish(): void
}
