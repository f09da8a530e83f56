import { argumentError, shown } from '@tsrun/core'
import { isHostAccessible } from '../../backend/current.ts'
import { createTensor, viewOf } from '../../backend/host-memory.ts'
import { isTensor, tf, type Tensor } from '../../tfjs/tfjs.ts'
import { equalParts } from './split.ts'

/**
 * A batch. All ranks pass the same batch. The first stage reads `inputs`, and the last stage reads
 * `labels`. A function is called only on the rank that reads it, and its tensor is disposed after use.
 * The caller still owns a tensor that it passes.
 */
export interface Batch {
  /** The number of examples; optional if `inputs` or `labels` is a tensor. */
  readonly size?: number
  /** The inputs: [size, ...] float32. */
  readonly inputs: Tensor | (() => Tensor)
  /** The labels: [size, ...]; for the default loss [size] int32. */
  readonly labels: Tensor | (() => Tensor)
}

/** The position of a batch in the training. Modules with random values depend on it; see `Pass`. */
export interface BatchPlace {
  readonly step: number
  /** The index of the batch's first row within the batch of all replicas. */
  readonly row: number
}

/** Whether the batch has no examples. In the last batch of an epoch, some replicas may have none. */
export function isEmptyBatch(batch: Given): boolean {
  return batch?.size === 0
}

/** A batch divided into micro-batches of consecutive rows. Call `dispose` after use. */
export interface Microbatches {
  /** The number of examples in the whole batch. */
  readonly size: number
  /**
   * The number of examples in each micro-batch. Sizes are as equal as possible, larger ones first.
   * A micro-batch without examples has one placeholder row of zeros.
   */
  readonly rows: readonly number[]
  /** The shape of one example. */
  inputShape(): readonly number[]
  /** Copies the inputs of a micro-batch; the caller disposes the tensor. */
  inputs(microbatch: number): Tensor
  /** Copies the labels of a micro-batch; the caller disposes the tensor. */
  labels(microbatch: number): Tensor
  /** Returns the labels of the whole batch, which the caller must not dispose. */
  readonly allLabels: () => Tensor
  dispose(): void
}

/** The rank of the first stage reads the inputs, and the rank of the last stage reads the labels. */
export interface Reader {
  readonly isFirst: boolean
  readonly isLast: boolean
}

/**
 * Divides a batch into micro-batches of consecutive rows, as a pipeline does. The tensors of a micro-batch
 * are copied from the batch on demand: of inputs [size, ...] a part [rows, ...] of the same dtype.
 *
 * @param count - the number of micro-batches; if the batch has fewer examples, one micro-batch per
 *   example
 * @throws ERR_TSR_ARGUMENT when `batch` is not a batch, when a part is missing, or when the size is
 *   unknown or differs from the size of the tensors
 * @example
 * const parts = cutBatch({ inputs, labels }, 8)
 * const first = parts.inputs(0) // [parts.rows[0], ...]
 */
export function cutBatch(batch: Batch, count: number): Microbatches {
  checkBatch(batch, { isFirst: true, isLast: true })
  return divideBatch(batch, count)
}

/** @param fill - whether to always make `count` micro-batches, even if the last ones have no examples */
export function divideBatch(batch: Batch, count: number, fill = false): Microbatches {
  const size = fill && isEmptyBatch(batch) ? 0 : sizeOf(batch)
  const parts = fill ? count : Math.min(count, size)
  const rows = equalParts(size, parts)
  const inputs = openPart('inputs', batch.inputs, size)
  const labels = openPart('labels', batch.labels, size)
  const cut = (part: typeof inputs, at: number) => part.rows(firstRow(rows, at), rows[at]!)
  return {
    size,
    rows,
    inputShape: inputs.shape,
    inputs: (at) => cut(inputs, at),
    labels: (at) => cut(labels, at),
    allLabels: labels.whole,
    dispose: () => {
      inputs.dispose()
      labels.dispose()
    },
  }
}

export function firstRow(rows: Microbatches['rows'], microbatch: number): number {
  return rows.slice(0, microbatch).reduce((sum, count) => sum + count, 0)
}

export function checkBatch(batch: Given, { isFirst, isLast }: Reader): void {
  const { size, inputs, labels } = batch ?? {}
  const isEmpty = (size ?? inputs ?? labels ?? undefined) === undefined
  const isMissing = isEmpty || (isFirst && !inputs) || (isLast && !labels)
  if (isMissing || isPart(batch)) {
    throw argumentError(
      'batch',
      shown(batch),
      'one object { inputs, labels }, of tensors or functions that make them',
    )
  }
  for (const [name, part] of Object.entries({ inputs, labels })) {
    if (part && !isPart(part)) refusePart(name, shown(part))
  }
}

type Given = { readonly [K in keyof Batch]?: Batch[K] | null } | null | undefined

export function isPart(value: unknown): boolean {
  return typeof value === 'function' || isTensor(value)
}

function refusePart(name: string, value: string): never {
  throw argumentError(`batch.${name}`, value, 'a tensor, or a function that makes one')
}

function sizeOf({ size, inputs, labels }: Batch) {
  const given = size ?? rowsIn(inputs) ?? rowsIn(labels)
  if (given === undefined || !Number.isSafeInteger(given) || given < 1) {
    throw argumentError(
      'batch.size',
      String(given),
      'a whole number from 1, the same on every rank',
    )
  }
  return given
}

export function rowsIn(part: unknown): number | undefined {
  return isTensor(part) ? part.shape[0] : undefined
}

function rowsOf(tensor: Tensor, from: number, count: number) {
  const [size, ...rest] = tensor.shape as [number, ...number[]]
  if (count === size) return tf.clone(tensor)
  if (tensor.dtype !== 'float32' || !isHostAccessible()) {
    return tf.slice(tensor, [from, ...rest.map(() => 0)], [count, ...rest])
  }
  // Do not use tf.slice: the wasm kernel copies the whole tensor for each slice.
  const row = tensor.size / size
  return createTensor([count, ...rest], (values) => {
    values.set(viewOf(tensor).subarray(from * row, (from + count) * row))
  })
}

/** One part of a batch: a tensor, or a function that is called when the tensor is first needed. */
function openPart(name: string, from: Tensor | (() => Tensor), size: number) {
  let tensor: Tensor | undefined
  const whole = () => {
    if (tensor === undefined) {
      const made = typeof from === 'function' ? from() : from
      if (!isTensor(made)) refusePart(name, `a function that made ${shown(made)}`)
      tensor = made
    }
    const { shape } = tensor
    if (shape[0] !== size) {
      throw argumentError(
        `batch.${name}`,
        `a tensor of shape [${shape.join(', ')}]`,
        `${size} rows, the size of the batch`,
      )
    }
    return tensor
  }
  const shape = () => whole().shape.slice(1)
  return {
    whole,
    shape,
    rows(from: number, count: number) {
      return count === 0
        ? tf.keep(tf.zeros([1, ...shape()], whole().dtype))
        : rowsOf(whole(), from, count)
    },
    dispose() {
      if (typeof from === 'function') tensor?.dispose()
    },
  }
}
