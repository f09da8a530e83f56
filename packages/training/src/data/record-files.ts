import { createReadStream } from 'node:fs'
import { importOptional, isTsrError, tsrError } from '@tsrun/core'
import { examplesFrom, type DataRecord, type FieldRules } from './records.ts'
import type { Examples } from './examples.ts'

/**
 * The rows of a CSV file (RFC 4180), whose first row has the names of the columns. All values are texts.
 *
 * @param separator - between values, for example `;`; default a comma
 *
 * @example
 * const records: DataRecord[] = []
 * for await (const record of csvRecords('houses.csv', ';')) records.push(record)
 * const houses = examplesFrom(records, { inputs: ['rooms', 'area'], labels: ['price'] })
 *
 * @throws ERR_TSR_DATASET when the file cannot be read, or a row has another number of values
 */
export async function* csvRecords(path: string, separator = ','): AsyncGenerator<DataRecord> {
  let names: readonly string[] | undefined
  let count = 0
  for await (const row of rowsOf(path, separator)) {
    count++
    if (names === undefined) {
      names = row.map((name, i) => (i === 0 ? name.replace(/^\uFEFF/, '') : name).trim())
      continue
    }
    if (row.length !== names.length) {
      const problem = `row ${count} has ${row.length} values, but there are ${names.length} columns`
      throw tsrError('ERR_TSR_DATASET', { path, problem })
    }
    yield Object.fromEntries(names.map((name, i) => [name, row[i]]))
  }
}

/** The objects of a file with a JSON object in each line. @throws ERR_TSR_DATASET */
export async function* jsonlRecords(path: string): AsyncGenerator<DataRecord> {
  let count = 0
  for await (const line of linesOf(path)) {
    count++
    if (line.trim() === '') continue
    try {
      yield JSON.parse(line) as DataRecord
    } catch (error) {
      const problem = `line ${count} is not JSON: ${(error as Error).message}`
      throw tsrError('ERR_TSR_DATASET', { path, problem }, { cause: error })
    }
  }
}

/**
 * The rows of a Parquet file, by the package `hyparquet`, one row group after the other.
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
    const file = await parquet.asyncBufferFromFile(path)
    const { row_groups: groups } = await parquet.parquetMetadataAsync(file)
    let rowStart = 0
    for (const { num_rows: rows } of groups) {
      const rowEnd = rowStart + Number(rows)
      yield* await parquet.parquetReadObjects({ file, rowStart, rowEnd })
      rowStart = rowEnd
    }
  } catch (error) {
    const { message: problem } = error as Error
    throw tsrError('ERR_TSR_DATASET', { path, problem }, { cause: error })
  }
}

/** The records of a file, by its ending: .csv, .tsv, .jsonl, .ndjson or .parquet. */
export function recordsIn(path: string): AsyncGenerator<DataRecord> {
  if (path.endsWith('.csv')) return csvRecords(path)
  if (path.endsWith('.tsv')) return csvRecords(path, '\t')
  if (/\.(jsonl|ndjson)$/.test(path)) return jsonlRecords(path)
  if (path.endsWith('.parquet')) return parquetRecords(path)
  const problem = 'its name ends in none of .csv, .tsv, .jsonl, .ndjson and .parquet'
  throw tsrError('ERR_TSR_DATASET', { path, problem })
}

/**
 * Reads all records of a file into memory: CSV, TSV, JSONL or Parquet, by the ending of its name.
 *
 * @param rules - how fields are made of the columns
 * @throws ERR_TSR_DATASET, ERR_TSR_PACKAGE_MISSING without the package `hyparquet` for Parquet
 *
 * @example
 * const houses = await readExamples('houses.csv', { inputs: ['rooms', 'area'], labels: ['price'] })
 */
export async function readExamples(path: string, rules: FieldRules): Promise<Examples> {
  const records: DataRecord[] = []
  for await (const record of recordsIn(path)) records.push(record)
  if (records.length === 0)
    throw tsrError('ERR_TSR_DATASET', { path, problem: 'it has no records' })
  return examplesFrom(records, rules, path)
}

async function* linesOf(path: string): AsyncGenerator<string> {
  let rest = ''
  try {
    for await (const chunk of createReadStream(path, 'utf8') as AsyncIterable<string>) {
      const lines = (rest + chunk).split(/\r?\n/)
      rest = lines.pop()!
      yield* lines
    }
  } catch (error) {
    if (isTsrError(error)) throw error
    const { message: problem } = error as Error
    throw tsrError('ERR_TSR_DATASET', { path, problem }, { cause: error })
  }
  if (rest !== '') yield rest
}

/** The rows of a CSV file. In quotes, separators and ends of lines belong to a value. */
async function* rowsOf(path: string, separator: string): AsyncGenerator<string[]> {
  let row: string[] = []
  let quoted: string | undefined
  for await (const line of linesOf(path)) {
    if (quoted === undefined && line === '') continue
    let rest = line
    for (;;) {
      if (quoted !== undefined) {
        const end = /^((?:[^"]|"")*)"(?!")/.exec(rest)
        if (end === null) {
          quoted += `${rest}\n`
          break
        }
        row.push((quoted + end[1]!).replaceAll('""', '"'))
        quoted = undefined
        rest = rest.slice(end[0].length)
        if (rest === '') break
        rest = rest.slice(separator.length)
      } else if (rest.startsWith('"')) {
        quoted = ''
        rest = rest.slice(1)
        continue
      } else {
        const at = rest.indexOf(separator)
        row.push(at < 0 ? rest : rest.slice(0, at))
        if (at < 0) break
        rest = rest.slice(at + separator.length)
      }
    }
    if (quoted !== undefined) continue
    yield row
    row = []
  }
  if (quoted !== undefined) {
    throw tsrError('ERR_TSR_DATASET', { path, problem: 'a quote is not closed' })
  }
}
