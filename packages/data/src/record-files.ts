import { pipeline } from 'node:stream'
import {
  filled,
  importOptional,
  isObject,
  isTsrError,
  messageOf,
  openFileHandle,
  shown,
} from '@tsrun/core'
import type { DataRecord, Examples, FieldRules } from '@tsrun/training'
import { datasetError, fileProblem } from '@tsrun/training/parts'
import { parse, type Info } from 'csv-parse'
import { examplesFrom, separatorHint, withLine } from './records.ts'

/** The largest number of characters in a line of JSONL or a row of CSV. */
const LONGEST = 2 ** 24

/**
 * Reads the rows of a CSV file (RFC 4180), whose first row names the columns. All values are strings.
 *
 * @param separator - the separator of values, for example `;`; default a comma
 *
 * @example
 * const records: DataRecord[] = []
 * for await (const record of csvRecords('houses.csv', ';')) records.push(record)
 * const houses = examplesFrom(records, { inputs: ['rooms', 'area'], labels: ['price'] })
 *
 * @throws ERR_TSR_DATASET when the file cannot be read, two columns have the same name, a row has too few
 *   or too many values or is longer than 16 MiB, or quotes are wrong
 */
export async function* csvRecords(path: string, separator = ','): AsyncGenerator<DataRecord> {
  filled().check('separator', separator)
  let names: readonly string[] | undefined
  let count = 0
  try {
    // The stream pipeline closes the file when the parser stops, and passes file errors to the parser.
    const rows = pipeline(
      (await openFileHandle(path)).createReadStream(),
      parse({
        bom: true,
        delimiter: separator,
        info: true,
        max_record_size: LONGEST,
        record_delimiter: ['\r\n', '\n'],
        relax_column_count: true,
        skip_empty_lines: true,
      }),
      () => undefined,
    ) as AsyncIterable<{ readonly record: readonly string[]; readonly info: Info }>
    for await (const { record, info } of rows) {
      count++
      if (names === undefined) {
        names = record.map((name) => name.trim())
        const seen = new Set<string>()
        const twice = names.find((name) => name !== '' && seen.size === seen.add(name).size)
        if (twice !== undefined) throw unusable(path, `it has several columns named ${twice}`)
        continue
      }
      if (record.length !== names.length) {
        const problem = `row ${count} has ${record.length} values, but there are ${names.length} columns`
        const hint = separatorHint(names)
        throw unusable(path, `${problem} (it ends in line ${info.lines})${hint}`)
      }
      const values = record.map((value) => value.replaceAll('\r\n', '\n'))
      yield withLine(Object.fromEntries(names.map((name, i) => [name, values[i]])), info.lines)
    }
  } catch (error) {
    throw unusable(path, error)
  }
}

/** Reads the objects of a file with one JSON object on each line. @throws ERR_TSR_DATASET */
export async function* jsonlRecords(path: string): AsyncGenerator<DataRecord> {
  let count = 0
  for await (const line of linesOf(path)) {
    count++
    if (line.trim() === '') continue
    const record = objectIn(line, (problem, cause) =>
      unusable(path, `line ${count} is ${problem}`, cause),
    )
    yield withLine(record, count)
  }
}

function objectIn(line: string, refused: (problem: string, cause?: unknown) => Error) {
  let value: unknown
  try {
    value = JSON.parse(line)
  } catch (error) {
    throw refused(`not JSON: ${messageOf(error)}`, error)
  }
  if (!isObject(value)) throw refused(`${shown(value)}, not an object`)
  const key = repeatedKey(line)
  if (key !== undefined) throw refused(`an object with the key ${key} twice`)
  return value
}

const COLON = /\s*:/y

/** Returns a key that occurs twice in an object of valid JSON. JSON.parse keeps only its last value. */
function repeatedKey(json: string) {
  const open: Set<string>[] = []
  for (let at = 0; at < json.length; at++) {
    const character = json[at]
    if (character === '{') open.push(new Set())
    if (character === '}') open.pop()
    if (character !== '"') continue
    const start = at++
    while (json[at] !== '"') at += json[at] === '\\' ? 2 : 1
    COLON.lastIndex = at + 1
    if (!COLON.test(json)) continue
    const text = json.slice(start, at + 1)
    // Normalize escapes, so that equal keys have equal texts.
    const key = text.includes('\\') ? JSON.stringify(JSON.parse(text)) : text
    const keys = open.at(-1)!
    if (keys.has(key)) return key
    keys.add(key)
  }
  return undefined
}

/**
 * Reads the rows of a Parquet file with the package `hyparquet`, one row group after the other.
 *
 * @throws ERR_TSR_DATASET, ERR_TSR_PACKAGE_MISSING without the package
 */
export async function* parquetRecords(path: string): AsyncGenerator<DataRecord> {
  const parquet = await importOptional(
    'Reading a Parquet file',
    'hyparquet',
    () => import('hyparquet'),
  )
  try {
    // Only check that the file is readable, because `hyparquet` opens it by name.
    await (await openFileHandle(path)).close()
    const file = await parquet.asyncBufferFromFile(path)
    const { row_groups: groups } = await parquet.parquetMetadataAsync(file)
    let rowStart = 0
    for (const { num_rows: rows } of groups) {
      const rowEnd = rowStart + Number(rows)
      yield* await parquet.parquetReadObjects({ file, rowStart, rowEnd })
      rowStart = rowEnd
    }
  } catch (error) {
    throw unusable(path, error)
  }
}

/**
 * Reads the records of a file. The ending of its name gives the format: .csv, .tsv, .jsonl, .ndjson
 * or .parquet.
 */
export function recordsIn(path: string): AsyncGenerator<DataRecord> {
  if (path.endsWith('.csv')) return csvRecords(path)
  if (path.endsWith('.tsv')) return csvRecords(path, '\t')
  if (/\.(jsonl|ndjson)$/.test(path)) return jsonlRecords(path)
  if (path.endsWith('.parquet')) return parquetRecords(path)
  throw unusable(path, 'its name ends in none of .csv, .tsv, .jsonl, .ndjson and .parquet')
}

/**
 * Reads all records of a file into memory. The ending of its name gives the format: CSV, TSV, JSONL
 * or Parquet.
 *
 * @param rules - how to make fields from the columns
 * @throws ERR_TSR_DATASET; ERR_TSR_PACKAGE_MISSING for Parquet without the package `hyparquet`
 *
 * @example
 * const houses = await readExamples('houses.csv', { inputs: ['rooms', 'area'], labels: ['price'] })
 */
export async function readExamples(path: string, rules: FieldRules): Promise<Examples> {
  const records: DataRecord[] = []
  for await (const record of recordsIn(path)) records.push(record)
  if (records.length === 0) throw unusable(path, 'it has no records')
  return examplesFrom(records, rules, path)
}

/** Yields the lines of a file, without a byte order mark. */
async function* linesOf(path: string): AsyncGenerator<string> {
  /** The parts of the current line that were in earlier chunks. */
  let parts: string[] = []
  let [length, count] = [0, 0]
  const add = (part: string) => {
    length += part.length
    if (length > LONGEST) {
      throw unusable(path, `line ${count + 1} has more than ${LONGEST} characters`)
    }
    parts.push(part)
  }
  const line = () => {
    const whole = parts.join('').replace(/\r$/, '')
    parts = []
    length = 0
    return count++ === 0 ? whole.replace(/^\uFEFF/, '') : whole
  }
  try {
    const stream = (await openFileHandle(path)).createReadStream({ encoding: 'utf8' })
    for await (const chunk of stream as AsyncIterable<string>) {
      const [first, ...others] = chunk.split('\n')
      add(first!)
      for (const other of others) {
        yield line()
        add(other)
      }
    }
  } catch (error) {
    throw unusable(path, error)
  }
  if (length > 0) yield line()
}

function unusable(path: string, reason: unknown, cause?: unknown) {
  if (isTsrError(reason)) return reason
  const origin = reason instanceof Error ? reason : undefined
  return datasetError(path, fileProblem(path, reason), cause ?? origin)
}
