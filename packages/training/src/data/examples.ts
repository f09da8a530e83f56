import { shown, tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom } from '../backend/host-memory.ts'
import { newArray, sizeOf, type HostArrays, type HostDType } from '../tfjs/host-arrays.ts'
import { tf } from '../tfjs/tfjs.ts'

/** One tensor of every example, for example its image or its label. */
export interface Field<D extends HostDType = HostDType> {
  /** Of one example; [] for a number. */
  readonly shape: readonly number[]
  readonly dtype: D
  /** Writes the values of the examples `indices` to `out` [indices.length, ...shape]. */
  read(indices: Int32Array, out: HostArrays[D]): void
}

/** The values of a field for all examples, one after the other. */
export interface Column {
  /** [examples, ...shape] */
  readonly values: ArrayLike<number>
  /** Of one example; default [], a number. */
  readonly shape?: readonly number[]
  /** Default: int32 for an Int32Array, otherwise float32. */
  readonly dtype?: HostDType
  /** A value becomes scale x value + shift when a batch is made; default 1. */
  readonly scale?: number
  /** Default 0. */
  readonly shift?: number
}

/** Examples as named tensors of any shape, which are read when a batch is made. */
export interface Examples {
  /** The number of examples. */
  readonly size: number
  /** `inputs` and `labels` are what a batch has under these names. */
  readonly fields: Readonly<Record<string, Field>>
}

/**
 * Examples from arrays in memory, or from functions that read them.
 *
 * @param columns - by name; `inputs` and `labels` are what `step` and `evaluate` take. An array is a
 *   column of numbers
 * @param size - the number of examples, required if all fields are functions
 *
 * @example
 * const data = examples({
 *   inputs: { values: pixels, shape: [28, 28, 1], scale: 1 / 255 },
 *   labels: Int32Array.from(digits),
 * })
 * await run.fit(data, { batch: 32, epochs: 3 })
 *
 * @throws ERR_TSR_ARGUMENT when columns have different numbers of examples
 */
export function examples(
  columns: Readonly<Record<string, ArrayLike<number> | Column | Field>>,
  size?: number,
): Examples {
  const fields: Record<string, Field> = {}
  let known = size
  for (const [name, given] of Object.entries(columns)) {
    if ('read' in given) {
      fields[name] = given
      continue
    }
    const column = isColumn(given) ? given : { values: given }
    if (typeof (column.values as Partial<ArrayLike<number>> | null)?.length !== 'number') {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: `the column ${name}`,
        value: shown(column.values),
        expected: 'an array of numbers, such as the values of a tensor: await tensor.data()',
      })
    }
    const count = column.values.length / sizeOf(column.shape ?? [])
    known ??= count
    if (count !== known || !Number.isInteger(count)) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: `the column ${name}`,
        value: `${column.values.length} values of shape [${(column.shape ?? []).join(', ')}]`,
        expected: `${known} examples, as the columns before it`,
      })
    }
    fields[name] = fieldOf(name, column)
  }
  if (known === undefined) {
    const expected = 'a column of values, or the number of examples'
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'columns', value: shown(columns), expected })
  }
  return { size: known, fields }
}

/** Arrays have a method of that name. */
function isColumn(given: ArrayLike<number> | Column): given is Column {
  return 'values' in given && typeof given.values !== 'function'
}

function fieldOf(
  name: string,
  { values, shape = [], scale = 1, shift = 0, ...rest }: Column,
): Field {
  const [first] = Array.from({ length: Math.min(1, values.length) }, (_, i) => values[i])
  if (first !== undefined && !['number', 'boolean'].includes(typeof first)) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: `the column ${name}`,
      value: `a list of ${shown(first)}`,
      expected: 'numbers, one after the other, and the shape of one example',
    })
  }
  const isInteger = Object.prototype.toString.call(values) === '[object Int32Array]'
  const { dtype = isInteger ? 'int32' : 'float32' } = rest
  const each = sizeOf(shape)
  return {
    shape,
    dtype,
    read(indices, out) {
      indices.forEach((index, row) => {
        const [from, to] = [index * each, row * each]
        for (let i = 0; i < each; i++) out[to + i] = values[from + i]! * scale + shift
      })
    },
  }
}

export function isExamples(data: object): data is Examples {
  return 'fields' in data
}

/**
 * Creates the tensor [indices.length, ...shape] of a field, which the caller disposes.
 *
 * @throws ERR_TSR_ARGUMENT when the examples have no such field
 */
export function fieldTensor({ fields }: Examples, name: string, indices: Int32Array): Tensor {
  const field = fields[name]
  if (field === undefined) {
    const expected = `one of ${Object.keys(fields).join(', ')}`
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'a field of the examples', value: name, expected })
  }
  const shape = [indices.length, ...field.shape]
  const values = newArray(shape, field.dtype)
  field.read(indices, values)
  return tf.keep(tensorFrom(values as Float32Array, shape, field.dtype as 'float32'))
}
