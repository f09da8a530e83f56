import { argumentError, shown } from '@tsrun/core'
import type { TensorLike } from '@tensorflow/tfjs-core'
import { tensorFrom } from '../backend/host-memory.ts'
import { checkValues } from '../data/examples.ts'
import type { Share } from '../data/order.ts'
import { fits, sizeOf } from '../tfjs/host-arrays.ts'
import { isPart, rowsIn, type Batch } from '../parallel/pipeline/microbatches.ts'
import { isTensor, tf, type Tensor } from '../tfjs/tfjs.ts'

/** Values of a batch in host memory. Float arrays become float32 tensors, integer arrays int32. */
export type BatchArray =
  | Float32Array
  | Float64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | Uint8Array
  | Uint8ClampedArray
  | Uint16Array
  | Uint32Array

/** The inputs or the labels of a batch. */
export type BatchPart = Tensor | (() => Tensor) | BatchArray

/** A batch of tensors, functions that make tensors, or typed arrays. */
export interface AnyBatch {
  /** The number of examples. Optional if `inputs` or `labels` is a tensor. */
  readonly size?: number
  /**
   * The index of the batch's first example within the batch of all replicas, which seeds random masks.
   * Default: computed as if all replicas had equally many examples.
   */
  readonly row?: number
  /** The index of this batch's replica, and the number of replicas; undefined if unknown. */
  readonly share?: Share
  /** The inputs: [size, ...]. */
  readonly inputs: BatchPart
  /** The labels: [size, ...]. */
  readonly labels: BatchPart
  /**
   * The shape of the inputs of one example, if `inputs` is an array. Default: [n], or [] if n is 1, where
   * n is the number of values of an example.
   */
  readonly shape?: readonly number[]
}

/** Whether a value is a single batch rather than an iterable of batches. */
export function isBatch(value: unknown): value is AnyBatch {
  return typeof value === 'object' && value !== null && 'inputs' in value && 'labels' in value
}

/** Rejects a batch of another replica. Its examples would count several times. @throws ERR_TSR_ARGUMENT */
export function checkShare({ share }: AnyBatch, [index, replicas]: Share): void {
  if (share === undefined || (share[0] === index && share[1] === replicas)) return
  throw argumentError(
    'batch',
    `part ${share[0]} of ${share[1]}`,
    `part ${index} of ${replicas}, as this replica has; pass share: run.share to what makes batches`,
  )
}

/** Converts the arrays of a batch to functions that create tensors. */
export function batchOf(batch: AnyBatch): Batch {
  const { inputs, labels, size, shape } = batch
  checkPart('inputs', inputs)
  checkPart('labels', labels)
  const count = size ?? [inputs, labels].map(rowsIn).find((rows) => rows !== undefined)
  if (!ArrayBuffer.isView(inputs) && !ArrayBuffer.isView(labels)) {
    return { ...(batch as Batch), ...(count !== undefined && { size: count }) }
  }
  if (count === undefined) {
    throw argumentError(
      'batch.size',
      'undefined',
      'the number of examples, which arrays do not tell',
    )
  }
  return {
    size: count,
    inputs: partOf('inputs', inputs, count, shape),
    labels: partOf('labels', labels, count, undefined),
  }
}

function checkPart(name: string, part: unknown): void {
  const isDisposed = isTensor(part) && part.isDisposed
  if ((isPart(part) || ArrayBuffer.isView(part)) && !isDisposed) return
  throw argumentError(
    `batch.${name}`,
    isDisposed ? 'a tensor that was disposed' : shown(part),
    'a tensor, a typed array such as a Float32Array, or a function that makes a tensor',
  )
}

function partOf(
  name: string,
  part: BatchPart,
  size: number,
  each: readonly number[] | undefined,
): Tensor | (() => Tensor) {
  if (!ArrayBuffer.isView(part)) return part
  const length = size === 0 ? 0 : part.length / size
  const wanted = each === undefined ? length : sizeOf(each)
  // Without examples, only the shape can be checked.
  if (size > 0 && (!Number.isInteger(length) || length !== wanted)) {
    throw argumentError(
      `batch.${name}`,
      `an array of ${part.length} values`,
      `${size} examples of ${each === undefined ? 'equal size' : `shape ${shown(each)}`}`,
    )
  }
  const rest = each ?? (length <= 1 ? [] : [length])
  const { [Symbol.toStringTag]: kind } = part
  if (/Big|DataView/.test(kind)) {
    throw argumentError(
      `batch.${name}`,
      shown(part),
      'an array of numbers, for example an Int32Array',
    )
  }
  const dtype = kind.startsWith('Float') ? 'float32' : 'int32'
  // Only Float64Array and Uint32Array can have values that the dtype cannot hold, such as 2^32 - 1.
  if (/Float64|Uint32/.test(kind)) {
    checkValues(`batch.${name}`, { values: part, scale: 1, shift: 0 }, dtype, true)
  }
  const isReady = kind === arrays[dtype].name
  const values = isReady ? (part as Float32Array | Int32Array) : new arrays[dtype](part)
  return () => tensorFrom(values, [size, ...rest], dtype)
}

const arrays = { float32: Float32Array, int32: Int32Array }

/** The maximum rank of a TensorFlow.js tensor, and so the maximum depth of nested lists. */
const MOST_AXES = 6

/**
 * Converts the inputs of a prediction to a tensor [rows, ...], which the caller disposes. Rows of integer
 * arrays become int32, others float32. Checks every row of nested lists, which may be untrusted JSON:
 * TensorFlow.js checks only the first row, and truncates or misreads others.
 */
export function rowsOf(inputs: Tensor | TensorLike): Tensor {
  if (isTensor(inputs)) {
    if (inputs.rank > 0 && !inputs.isDisposed) return tf.keep(tf.clone(inputs))
    throw refused('inputs', inputs.isDisposed ? 'a tensor that was disposed' : 'a single number')
  }
  if (!Array.isArray(inputs) || inputs.length === 0) throw refused('inputs', describe(inputs))
  const rows: readonly unknown[] = inputs
  const isFlat = rows.every((row) => typeof row !== 'object')
  if (isFlat) throw refused('inputs', `a flat list of ${rows.length} values, without rows`)
  const { shape, isWhole } = formOf(rows[0])
  const dtype = isWhole ? 'int32' : 'float32'
  const values: number[] = []
  const read = (value: unknown, axes: readonly number[], name: string): void => {
    const [length, ...inner] = axes
    if (length === undefined) {
      const expected = typeof value === 'number' ? fits(value, dtype) : 'a number'
      if (expected !== undefined) throw refused(name, describe(value), expected)
      values.push(value as number)
      return
    }
    if (!isList(value) || value.length !== length) {
      throw refused(name, describe(value), `a list of ${length}, as in row 1`)
    }
    for (let i = 0; i < length; i++) read(value[i], inner, name)
  }
  for (let i = 0; i < rows.length; i++) read(rows[i], shape, `row ${i + 1} of inputs`)
  return tensorFrom(arrays[dtype].from(values), [rows.length, ...shape], dtype)
}

function formOf(first: unknown): { shape: readonly number[]; isWhole: boolean } {
  const shape: number[] = []
  let [value, isWhole] = [first, false]
  while (isList(value)) {
    shape.push(value.length)
    const isShallow = shape.length < MOST_AXES
    if (value.length === 0 || !isShallow) {
      const problem = isShallow ? 'an empty list' : `nested deeper than ${MOST_AXES} lists`
      throw refused('row 1 of inputs', problem)
    }
    isWhole = /^(Int|Uint)/.test(value.constructor.name)
    value = value[0]
  }
  return { shape, isWhole }
}

function isList(value: unknown): value is ArrayLike<unknown> {
  return Array.isArray(value) || (ArrayBuffer.isView(value) && 'length' in value)
}

function describe(value: unknown): string {
  if (isList(value)) return `a list of ${value.length}`
  const isObject = typeof value === 'object' && value !== null
  return isObject ? `an object with the keys ${Object.keys(value).join(', ')}` : shown(value)
}

function refused(
  name: string,
  value: string,
  expected = 'a list of rows of the same shape, such as [[1, 2], [3, 4]], or a tensor [rows, ...]',
): Error {
  return argumentError(name, value, expected)
}
