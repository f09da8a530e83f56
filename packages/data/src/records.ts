import { argumentError, refuseUnknown, shown, tsrError } from '@tsrun/core'
import {
  examples,
  type Column,
  type DataRecord,
  type Examples,
  type FieldRule,
  type FieldRules,
  type FieldSource,
  type HostDType,
} from '@tsrun/training'
import { dtypeRule, fits } from '@tsrun/training/parts'

/** The property of a record that stores the number of its last line in the file. */
const LINE = Symbol('line')

/** Stores the line number of a record in a non-enumerable property, for error messages. */
export function withLine(record: DataRecord, line: number): DataRecord {
  return Object.defineProperty(record, LINE, { value: line })
}

/**
 * Makes examples from records in memory.
 *
 * @param where - the name of the data source, for error messages
 * @throws ERR_TSR_DATASET when a record lacks a key, or has a value that is not a number or does
 *   not fit its dtype; ERR_TSR_ARGUMENT for an unknown rule
 *
 * @example
 * examplesFrom(rows, { inputs: ['rooms', 'area'], labels: ['price'] })
 */
export function examplesFrom(
  records: readonly DataRecord[],
  rules: FieldRules,
  where = 'the records',
): Examples {
  return examplesAt(records, rules, (row) => ({ path: where, record: row + 1 }))
}

/** The origin of a record, for error messages: its file, and its number in the file, from 1. */
export interface RecordPlace {
  readonly path: string
  readonly record: number
}

/** Like `examplesFrom`, but with the origin of each record. */
export function examplesAt(
  records: readonly DataRecord[],
  rules: FieldRules,
  placeOf: (row: number) => RecordPlace,
): Examples {
  const columns = Object.entries(rules).map(
    ([name, rule]) => [name, columnOf(records, name, checkedRule(name, rule), placeOf)] as const,
  )
  return examples(Object.fromEntries(columns), records.length)
}

function checkedRule(field: string, given: FieldRule) {
  const name = `the rule of ${field}`
  const isSource = typeof given !== 'object' || Array.isArray(given)
  const rule = (isSource ? { from: given } : given) as Exclude<FieldRule, FieldSource>
  refuseUnknown(rule, ['from', 'dtype', 'classes', 'shape'], name)
  const { from, dtype, classes, shape } = rule
  const isKey = [from].flat().every((key) => typeof key === 'string')
  if (!isKey && typeof from !== 'function') {
    throw argumentError(
      `from of ${name}`,
      shown(from),
      'a column, a list of columns, or a function of the record',
    )
  }
  const names = Array.isArray(classes) ? new Set<unknown>(classes) : undefined
  const isDistinct = names?.size === classes?.length && !names?.has(undefined)
  if (classes !== undefined && !isDistinct) {
    throw argumentError(`classes of ${name}`, shown(classes), 'a list of different names')
  }
  const usual = classes === undefined ? 'float32' : 'int32'
  return { from, dtype: dtypeRule.default(usual).check(`dtype of ${name}`, dtype), classes, shape }
}

/** The nesting limit of lists. No tensor has as many axes. */
const DEEPEST = 16

type Refuse = (problem: string) => never

function columnOf(
  records: readonly DataRecord[],
  name: string,
  { from, dtype, classes, shape }: ReturnType<typeof checkedRule>,
  placeOf: (row: number) => RecordPlace,
): Column {
  const values: number[] = []
  let found: readonly number[] | undefined
  for (const [row, record] of records.entries()) {
    const refuse: Refuse = (problem) => {
      const { path, record: number } = placeOf(row)
      const { [LINE]: line } = Object(record) as { [LINE]?: number }
      const place = `record ${number}${line === undefined ? '' : ` (line ${line})`}`
      throw tsrError('ERR_TSR_DATASET', { path, problem: `${place}: ${problem}` })
    }
    if (typeof (record as unknown) !== 'object' || (record as unknown) === null)
      refuse(`it is ${shown(record)}, not an object`)
    const start = values.length
    const add = (value: unknown, source: string) => {
      const refuseHere: Refuse = (problem) => refuse(`${problem} (${source})`)
      const read = (each: unknown) => {
        if (typeof from === 'function' && Number.isNaN(each)) {
          const hint = separatorHint(Object.keys(record))
          refuse(`the function of ${name} gives NaN: a value is missing or no number${hint}`)
        }
        values.push(numberFrom(each, dtype, classes, refuseHere))
      }
      return readAll(value, read, refuseHere)
    }
    const shapes =
      typeof from === 'function'
        ? [add(from(withoutEmpty(record)), `the function of ${name}`)]
        : [from].flat().map((key) => add(valueOf(record, key, name, refuse), `column ${key}`))
    const own = shapeOf(shapes, Array.isArray(from))
    if (own.some(Number.isNaN)) refuse(`it has lists of different lengths in one value (${name})`)
    found ??= own
    if (own.join() !== found.join()) {
      refuse(
        `it has ${values.length - start} values of shape [${own.join(', ')}], the first one [${found.join(', ')}] (${name})`,
      )
    }
  }
  return { values, shape: shape ?? found ?? [], dtype }
}

function valueOf(record: DataRecord, key: string, field: string, refuse: Refuse): unknown {
  const value = Object.hasOwn(record, key) ? record[key] : undefined
  if (value !== undefined && value !== null && value !== '') return value
  const names = Object.keys(record)
  if (names.includes(key)) return refuse(`its ${key} is empty`)
  const isReversed = ['inputs', 'labels'].includes(key) && names.includes(field)
  const hint = isReversed
    ? `; the name of the field comes first: { ${key}: '${field}' }`
    : separatorHint(names)
  return refuse(`it has no ${key}, only ${names.join(', ')}${hint}`)
}

export function separatorHint(names: readonly string[]): string {
  const found = names.length === 1 ? /[;|\t,]/.exec(names[0]!)?.[0] : undefined
  const separator = JSON.stringify(found)
  return found === undefined
    ? ''
    : `; if ${separator} separates the values, see csvRecords(path, ${separator})`
}

/** Removes empty values, because a user's function may convert them to 0. */
function withoutEmpty(record: DataRecord): DataRecord {
  const values = Object.entries(record).filter(([, value]) => value !== '' && value !== null)
  return Object.fromEntries(values)
}

/** Reads nested lists of values. Returns their shape, with NaN for an axis whose lengths differ. */
function readAll(
  value: unknown,
  read: (value: unknown) => void,
  refuse: Refuse,
  depth = 0,
): readonly number[] {
  if (!Array.isArray(value) && !ArrayBuffer.isView(value)) {
    read(value)
    return []
  }
  if (depth === DEEPEST) refuse(`it has lists nested deeper than ${DEEPEST}`)
  const items = Array.from(value as ArrayLike<unknown>)
  const inner = items.map((item) => readAll(item, read, refuse, depth + 1))
  return shapeOf(inner, true)
}

function shapeOf(parts: readonly (readonly number[])[], isList: boolean) {
  if (!isList) return parts[0]!
  const isEven = parts.every((shape) => shape.join() === parts[0]!.join())
  return [parts.length, ...(isEven ? (parts[0] ?? []) : [NaN])]
}

/** Matches a number in the notation of data files. `Number` would also accept 0x10 and Infinity. */
const DECIMAL = /^\s*[-+]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?\s*$/i

/** The types of values that become numbers. Objects are rejected; `Number` would convert a date. */
const NUMBERS: readonly string[] = ['number', 'bigint', 'boolean']

function numberFrom(
  value: unknown,
  dtype: HostDType,
  classes: readonly string[] | undefined,
  refuse: Refuse,
) {
  if (classes !== undefined) {
    const index = classes.indexOf(String(value))
    return index < 0 ? refuse(`${shown(value)} is none of ${classes.join(', ')}`) : index
  }
  const isBlank = typeof value === 'string' && value.trim() === ''
  const isMissing = value === undefined || value === null || isBlank
  if (isMissing) return refuse('it has an empty value where a number belongs')
  const isText = typeof value === 'string'
  const isNumber = isText ? DECIMAL.test(value) : NUMBERS.includes(typeof value)
  const number = isNumber ? Number(value) : NaN
  if (Number.isNaN(number)) return refuse(`${shown(value)} is not a number`)
  const problem = fits(number, dtype)
  return problem === undefined ? number : refuse(`${shown(value)} is not ${problem}`)
}
