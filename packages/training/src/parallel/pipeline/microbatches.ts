import { tsrError } from '@tsrun/core'
import { reachesTensors } from '../../backend/bridge/select.ts'
import { createTensor, viewOf } from '../../backend/host-memory.ts'
import { tf, type Tensor } from '../../backend/tensorflow.ts'
import type { Batch } from './model.ts'

/** A batch cut into micro-batches of neighbouring rows; `dispose` it after use. */
export interface Microbatches {
  /** Examples of the whole batch. */
  readonly size: number
  /** Examples of each micro-batch: as even as can be, the first ones take one more. */
  readonly rows: readonly number[]
  /** Of one example. */
  inputShape(): readonly number[]
  /** The caller's to dispose. */
  inputs(microbatch: number): Tensor
  /** The caller's to dispose. */
  labels(microbatch: number): Tensor
  dispose(): void
}

/**
 * @param count - number of micro-batches, at most; a smaller batch makes as many as it has examples
 * @throws ERR_TSR_ARGUMENT when the size is unknown or not what the tensors hold
 */
export function cutBatch(batch: Batch, count: number): Microbatches {
  const size = sizeOf(batch)
  const parts = Math.min(count, size)
  const each = Math.floor(size / parts)
  const rows = Array.from({ length: parts }, (_, part) => each + (part < size % parts ? 1 : 0))
  const inputs = new Source('inputs', batch.inputs, size)
  const labels = new Source('labels', batch.labels, size)
  const cut = (source: Source, part: number): Tensor =>
    source.rows(part * each + Math.min(part, size % parts), rows[part]!)
  return {
    size,
    rows,
    inputShape: () => inputs.shape,
    inputs: (part) => cut(inputs, part),
    labels: (part) => cut(labels, part),
    dispose: () => {
      inputs.dispose()
      labels.dispose()
    },
  }
}

function sizeOf({ size, inputs, labels }: Batch): number {
  const given =
    size ??
    (typeof inputs === 'function' ? undefined : inputs.shape[0]) ??
    (typeof labels === 'function' ? undefined : labels.shape[0])
  if (given === undefined || !Number.isSafeInteger(given) || given < 1) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'batch.size',
      value: String(given),
      expected: 'a whole number from 1, the same on every rank',
    })
  }
  return given
}

function rowsOf(tensor: Tensor, from: number, count: number): Tensor {
  const [size, ...rest] = tensor.shape as [number, ...number[]]
  if (tensor.dtype !== 'float32' || !reachesTensors()) {
    return tf.slice(tensor, [from, ...rest.map(() => 0)], [count, ...rest])
  }
  // The slice kernel of wasm copies the whole tensor for each slice.
  const row = tensor.size / size
  return createTensor([count, ...rest], (values) => {
    values.set(viewOf(tensor).subarray(from * row, (from + count) * row))
  })
}

/** The whole batch's tensor, made when first asked for. */
class Source {
  readonly #name: string
  readonly #make: () => Tensor
  readonly #owned: boolean
  readonly #size: number
  #tensor: Tensor | undefined

  constructor(name: string, from: Tensor | (() => Tensor), size: number) {
    this.#name = name
    this.#owned = typeof from === 'function'
    this.#make = typeof from === 'function' ? from : () => from
    this.#size = size
  }

  /** Of one row. */
  get shape(): readonly number[] {
    return this.#whole().shape.slice(1)
  }

  rows(from: number, count: number): Tensor {
    return rowsOf(this.#whole(), from, count)
  }

  dispose(): void {
    if (this.#owned) this.#tensor?.dispose()
  }

  #whole(): Tensor {
    this.#tensor ??= this.#make()
    const { shape } = this.#tensor
    if (shape[0] !== this.#size) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: `batch.${this.#name}`,
        value: `a tensor of shape [${shape.join(', ')}]`,
        expected: `${this.#size} rows, the size of the batch`,
      })
    }
    return this.#tensor
  }
}
