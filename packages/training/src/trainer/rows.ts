import { argumentError, shown } from '@tsrun/core'
import type { TensorLike } from '@tensorflow/tfjs-core'
import { tensorFrom } from '../backend/host-memory.ts'
import { fits } from '../tfjs/host-arrays.ts'
import { isTensor, tf, type Tensor } from '../tfjs/tfjs.ts'

/** The maximum rank of a TensorFlow.js tensor, and so the maximum depth of nested lists. */
const MOST_AXES = 6

/**
 * Converts the inputs of a prediction to a tensor [rows, ...], which the caller disposes. Rows of integer
 * arrays become int32, others float32. Checks every row of nested lists, which may be untrusted JSON:
 * TensorFlow.js checks only the first row, and truncates or misreads others.
 *
 * @throws ERR_TSR_ARGUMENT that names the row
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
  const array = (isWhole ? Int32Array : Float32Array).from(values)
  return tensorFrom(array, [rows.length, ...shape], dtype)
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
