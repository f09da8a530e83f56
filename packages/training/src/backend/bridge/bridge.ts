import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'

/** The arrays that hold a tensor's values on the host, by dtype; a bool is a byte, 0 or 1. */
export interface HostArrays {
  readonly float32: Float32Array
  readonly int32: Int32Array
  readonly bool: Uint8Array
}

/** Dtypes of tensors whose values are numbers of one size. */
export type HostDType = keyof HostArrays
export type HostArray = HostArrays[HostDType]

/** How the values of a backend's tensors get into arrays of the host, and out of them. */
export interface Bridge {
  /**
   * The tensor's own memory, where the host reaches it; valid until the next allocation, and not to
   * be written to. Absent where values have to be fetched.
   */
  readonly view?: (tensor: TensorInfo) => HostArray

  /**
   * The values, where the host has them or can fetch them at once; undefined where they are on a
   * device that answers later. Not to be written to.
   */
  readonly peek?: (tensor: TensorInfo) => HostArray | undefined

  /**
   * Copies the values of a tensor into `target`, which fits. Backends that can fetch values only
   * asynchronously return a promise; until it is settled both belong to the bridge.
   */
  readonly writeTo: (tensor: TensorInfo, target: HostArray) => void | Promise<void>

  /**
   * Makes a tensor of what `fill` writes into an array of its size: the tensor's own memory where
   * that is in reach. `fill` is called once, before this returns.
   */
  readonly create: (
    shape: readonly number[],
    dtype: HostDType,
    fill: (values: HostArray) => void,
  ) => Tensor

  /** A tensor of the values of an array of its size; undefined where `create` takes no more. */
  readonly from?: (
    source: HostArray,
    shape: readonly number[],
    dtype: HostDType,
  ) => Tensor | undefined
}
