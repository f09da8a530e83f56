import { shown, tsrError } from '@tsrun/core'
import type { HostDType } from '../tfjs/host-arrays.ts'
import { examples, type Column, type Examples } from './examples.ts'

/** A row of a CSV file, an object of a JSONL file, ...: values by name. */
export type DataRecord = Readonly<Record<string, unknown>>

/** Where the values of a field come from: a key of the records, several keys, or a function. */
export type FieldSource =
  string | readonly string[] | ((record: DataRecord) => number | ArrayLike<number>)

/** How a field of `examples` is made of records. */
export type FieldRule =
  | FieldSource
  | {
      readonly from: FieldSource
      /** Default float32, or int32 with `classes`. */
      readonly dtype?: HostDType
      /** Names that become 0, 1, 2, ... in this order. */
      readonly classes?: readonly string[]
      /** Of one example, for values in one list; default: that of the nested lists. */
      readonly shape?: readonly number[]
    }

/** By name of the field; a batch takes `inputs` and `labels`. */
export type FieldRules = Readonly<Record<string, FieldRule>>

/**
 * Examples from records in memory.
 *
 * @param where - the file that they come from, for errors
 * @throws ERR_TSR_DATASET when a record lacks a key, or has something else than numbers
 *
 * @example
 * examplesFrom(rows, { inputs: ['rooms', 'area'], labels: ['price'] })
 */
export function examplesFrom(
  records: readonly DataRecord[],
  rules: FieldRules,
  where = 'the records',
): Examples {
  const columns = Object.entries(rules).map(([name, rule]) => {
    return [name, columnOf(records, rule, where)] as const
  })
  return examples(Object.fromEntries(columns), records.length)
}

function columnOf(records: readonly DataRecord[], rule: FieldRule, where: string): Column {
  const isObject = typeof rule === 'object' && 'from' in rule
  const { from, dtype, classes, shape } = isObject
    ? { dtype: undefined, classes: undefined, shape: undefined, ...rule }
    : { from: rule }
  const values: number[] = []
  let found: readonly number[] | undefined
  for (const [row, record] of records.entries()) {
    const refuse = (problem: string): never => {
      const text = `record ${row + 1}: ${problem}`
      throw tsrError('ERR_TSR_DATASET', { path: where, problem: text })
    }
    const start = values.length
    const own = append(valueOf(record, from, refuse), values, (value) =>
      numberFrom(value, classes, refuse),
    )
    if (typeof from === 'function' && values.slice(start).some(Number.isNaN)) {
      refuse('the function of a field gives NaN: a value is missing or no number')
    }
    if (own.some(Number.isNaN)) refuse('it has lists of different lengths in one value')
    found ??= own
    if (own.join() !== found.join()) {
      refuse(
        `it has ${values.length - start} values of shape [${own.join(', ')}], the first one [${found.join(', ')}]`,
      )
    }
  }
  return {
    values,
    shape: shape ?? found ?? [],
    dtype: dtype ?? (classes === undefined ? 'float32' : 'int32'),
  }
}

function valueOf(record: DataRecord, from: FieldSource, refuse: (problem: string) => never) {
  const get = (key: string): unknown => {
    const value = record[key]
    if (value !== undefined && value !== null && value !== '') return value
    const names = Object.keys(record)
    if (names.includes(key)) return refuse(`its ${key} is empty`)
    const isOther = names.length === 1 && names[0]!.includes(';')
    const hint = isOther ? "; for a separator other than the comma, see csvRecords(path, ';')" : ''
    return refuse(`it has no ${key}, only ${names.join(', ')}${hint}`)
  }
  if (typeof from === 'function') return from(withoutEmpty(record))
  return typeof from === 'string' ? get(from) : from.map(get)
}

/** A function would take an empty text for the number 0. */
function withoutEmpty(record: DataRecord): DataRecord {
  const values = Object.entries(record).filter(([, value]) => value !== '' && value !== null)
  return Object.fromEntries(values)
}

/** Appends nested lists of values. @returns their shape */
function append(value: unknown, to: number[], read: (value: unknown) => number): readonly number[] {
  if (!Array.isArray(value) && !ArrayBuffer.isView(value)) {
    to.push(read(value))
    return []
  }
  const items = Array.from(value as ArrayLike<unknown>)
  const inner = items.map((item) => append(item, to, read))
  const isEven = inner.every((shape) => shape.join() === inner[0]!.join())
  // Of lists of different lengths no shape is right: one that no other record has.
  return isEven ? [items.length, ...(inner[0] ?? [])] : [items.length, NaN]
}

function numberFrom(
  value: unknown,
  classes: readonly string[] | undefined,
  refuse: (problem: string) => never,
): number {
  if (classes !== undefined) {
    const index = classes.indexOf(String(value))
    return index < 0 ? refuse(`${shown(value)} is none of ${classes.join(', ')}`) : index
  }
  const isBlank = typeof value === 'string' && value.trim() === ''
  const isMissing = value === undefined || value === null || isBlank
  if (isMissing) return refuse('it has an empty value where a number belongs')
  const number = Number(value)
  const isText = typeof value === 'string' && !/^\s*[-+]?nan\s*$/i.test(value)
  return Number.isNaN(number) && (isText || typeof value === 'object')
    ? refuse(`${shown(value)} is not a number`)
    : number
}
