import {
  argumentError,
  count,
  finite,
  list,
  refuseUnknown,
  shown,
  where,
  type Complete,
} from '@tsrun/core'
import { dtypeRule, fits, sizeOf, type HostArrays, type HostDType } from '../tfjs/host-arrays.ts'

/** One tensor of each example, for example its image or its label. */
export interface Field<D extends HostDType = HostDType> {
  /** The shape of the field in one example; [] for a number. */
  readonly shape: readonly number[]
  readonly dtype: D
  /** Writes the values of the examples `indices` to `out` [indices.length, ...shape]. */
  read(indices: Int32Array, out: HostArrays[D]): void
  /**
   * Whether `read` may write to the memory of a tensor, because it writes all values and creates no tensors;
   * default false.
   */
  readonly inPlace?: boolean
}

/** The values of a field for all examples, stored one example after the other. */
export interface Column {
  /** The values [examples, ...shape], in row-major order. */
  readonly values: ArrayLike<number>
  /** The shape of the field in one example; default [], a number. */
  readonly shape?: readonly number[]
  /** The dtype; default: int32 for a typed array of integers without scale and shift, otherwise float32. */
  readonly dtype?: HostDType
  /** A factor; default 1. Each value becomes scale x value + shift when a batch is made. */
  readonly scale?: number
  /** A summand; default 0. See `scale`. */
  readonly shift?: number
}

/** Examples as named tensors of any shape. They are read when a batch is made. */
export interface Examples {
  /** The number of examples. */
  readonly size: number
  /** The tensors of each example, by name. A batch uses `inputs` and `labels`. */
  readonly fields: Readonly<Record<string, Field>>
}

/**
 * Makes examples from arrays in memory, or from functions that read them.
 *
 * @param columns - by name; `step` and `evaluate` use `inputs` and `labels`. An array is a column of
 *   numbers
 * @param size - the number of examples, required if all fields are functions
 *
 * @example
 * const data = examples({
 *   inputs: { values: pixels, shape: [28, 28, 1], scale: 1 / 255 },
 *   labels: Int32Array.from(digits),
 * })
 * await run.fit(data, { batch: 32, epochs: 3 })
 *
 * @throws ERR_TSR_ARGUMENT when columns have different numbers of examples, a key that does not exist, or
 *   values that their dtype cannot hold, such as NaN or 1.5 as int32
 */
export function examples(
  columns: Readonly<Record<string, ArrayLike<number> | Column | Field>>,
  size?: number,
): Examples {
  const fields: Record<string, Field> = {}
  let known = sizeRule.check('the number of examples', size)
  for (const [name, given] of Object.entries(columns)) {
    if (isField(given)) {
      refuseUnknown(given, ['shape', 'dtype', 'read', 'inPlace'], `the column ${name}`)
      dtypeRule.check(`dtype of the column ${name}`, given.dtype)
      shapeRule.check(`shape of the column ${name}`, given.shape)
      fields[name] = given
      continue
    }
    const column = checkedColumn(name, given)
    const { values, shape } = column
    const count = values.length / sizeOf(shape)
    known ??= count
    if (count !== known || !Number.isInteger(count)) {
      throw argumentError(
        `the column ${name}`,
        `${values.length} values of shape [${shape.join(', ')}]`,
        `${known} examples, as the columns before it`,
      )
    }
    fields[name] = fieldOf(name, column)
  }
  if (known === undefined) {
    throw argumentError('columns', shown(columns), 'a column of values, or the number of examples')
  }
  return { size: known, fields }
}

const sizeRule = count().optional()
const shapeRule = where<readonly number[]>(
  list(count()).is,
  'a list of whole numbers, such as [28, 28, 1]',
)
const columnRules = {
  values: where<ArrayLike<number>>(
    (values) => typeof (values as Partial<ArrayLike<number>> | null)?.length === 'number',
    'an array of numbers, such as the values of a tensor: await tensor.data()',
  ),
  shape: shapeRule.default([]),
  dtype: dtypeRule.optional(),
  scale: finite().default(1),
  shift: finite().default(0),
}

function isField(given: ArrayLike<number> | Column | Field): given is Field {
  return typeof (given as Partial<Field> | null)?.read === 'function'
}

/** Whether `given` is a column. An array also has `values`, but as a method. */
function isColumn(given: ArrayLike<number> | Column): given is Column {
  return typeof given === 'object' && typeof (given as Partial<Column> | null)?.values === 'object'
}

function checkedColumn(name: string, given: ArrayLike<number> | Column) {
  const column = isColumn(given) ? given : { values: given }
  columnRules.values.check(`the column ${name}`, column.values)
  refuseUnknown(column, Object.keys(columnRules), `the column ${name}`)
  const checked = Object.entries(columnRules).map(([key, rule]) => [
    key,
    rule.check(`${key} of the column ${name}`, column[key as keyof Column]),
  ])
  return Object.fromEntries(checked) as Complete<typeof columnRules>
}

/** Matches integer arrays. Their values fit int32, except for large values of a Uint32Array. */
const INTEGERS = /\[object (Int(8|16|32)|Uint(8|8Clamped|16|32))Array\]/

function fieldOf(
  name: string,
  { values, shape, scale, shift, ...rest }: ReturnType<typeof checkedColumn>,
): Field {
  const kind = Object.prototype.toString.call(values)
  const isWhole = INTEGERS.test(kind) && scale === 1 && shift === 0
  const { dtype = isWhole ? 'int32' : 'float32' } = rest
  const isFloat = dtype === 'float32' && ArrayBuffer.isView(values)
  const isSafe = isFloat
    ? !/Float64|Big/.test(kind)
    : dtype === 'int32' && isWhole && !kind.includes('Uint32')
  if (!isSafe) checkValues(`the column ${name}`, { values, scale, shift }, dtype, isFloat)
  const each = sizeOf(shape)
  return {
    shape,
    dtype,
    inPlace: true,
    read(indices, out) {
      indices.forEach((index, row) => {
        const [from, to] = [index * each, row * each]
        for (let i = 0; i < each; i++) out[to + i] = values[from + i]! * scale + shift
      })
    },
  }
}

/** Checks that all values fit `dtype`. With `mayBeInfinite`, infinities (as in masks) and NaN are valid. */
export function checkValues(
  what: string,
  { values, scale, shift }: Required<Pick<Column, 'values' | 'scale' | 'shift'>>,
  dtype: HostDType,
  mayBeInfinite: boolean,
) {
  for (let i = 0; i < values.length; i++) {
    const value: unknown = values[i]
    if (mayBeInfinite && typeof value === 'number' && !Number.isFinite(value)) continue
    const isNumber = typeof value === 'number' || typeof value === 'boolean'
    const expected = isNumber
      ? fits(Number(value) * scale + shift, dtype)
      : 'numbers, one after the other, and the shape of one example'
    if (expected === undefined) continue
    throw argumentError(
      what,
      isNumber ? `${shown(value)} at index ${i}` : `a list of ${shown(value)} at index ${i}`,
      isNumber ? `${expected} there, as its dtype is ${dtype}` : expected,
    )
  }
}
