import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { csvRecords, examplesFrom, jsonlRecords, readExamples, type DataRecord } from '@tsrun/data'
import { batches, loadBackend } from '@tsrun/training'
import { runModule } from '../training/backend/support/process.ts'
import { makeFolder, removeFolders } from '../training/checkpoint/support/folder.ts'
import { take } from '../training/data/support/take.ts'
import { failure } from '../training/parallel/support/failure.ts'

beforeAll(() => loadBackend('wasm'))
afterEach(removeFolders)

const parquet = fileURLToPath(new URL('fixtures/points.parquet', import.meta.url))
const built = new URL('../../packages/data/dist/index.js', import.meta.url).href

function fileOf(name: string, text: string): string {
  const path = join(makeFolder(), name)
  writeFileSync(path, text)
  return path
}

describe('records', () => {
  const rules = { inputs: ['a', 'b'], labels: { from: 'kind', classes: ['x', 'y'] } } as const

  it('of a CSV file may contain quoted values, CRLF line ends and a byte order mark', async () => {
    const text = '\uFEFFa,b,"the ""kind"""\r\n1,2,"x, with\r\nend"\n-3.5,1e2,\n\n'
    const rows: unknown[] = []
    for await (const row of csvRecords(fileOf('a.csv', text))) rows.push(row)
    expect(rows).toEqual([
      { a: '1', b: '2', 'the "kind"': 'x, with\nend' },
      { a: '-3.5', b: '1e2', 'the "kind"': '' },
    ])
  })

  it.each([
    ['data.csv', 'a,b,kind\n1,2,y\n3,4.5,x\n'],
    ['data.tsv', 'kind\ta\tb\ny\t1\t2\nx\t3\t4.5'],
    ['data.jsonl', '{"a":1,"b":2,"kind":"y"}\n\n{"kind":"x","a":3,"b":4.5}\n'],
  ])('of %s are read into inputs and labels', async (name, text) => {
    const data = await readExamples(fileOf(name, text), rules)
    const [batch] = [...batches(data, { batch: 2, shuffle: false })]
    expect(take(batch!.inputs())).toEqual({
      dtype: 'float32',
      shape: [2, 2],
      values: [1, 2, 3, 4.5],
    })
    expect(take(batch!.labels())).toEqual({ dtype: 'int32', shape: [2], values: [1, 0] })
  })

  it('of a Parquet file are read into columns and computed fields', async () => {
    const data = await readExamples(parquet, {
      inputs: 'point',
      labels: { from: 'kind', classes: ['near', 'far'] },
      count: 'count',
      sum: ({ point }) => (point as number[]).reduce((a, b) => a + b),
    })
    const [batch] = [...batches(data, { batch: 9, shuffle: false })]
    expect(take(batch!.inputs())).toEqual({
      dtype: 'float32',
      shape: [5, 2],
      values: [0.5, 1.5, 2, -3, 0.25, 4, 1, 2, 9, 8],
    })
    expect(take(batch!.labels()).values).toEqual([0, 1, 0, 1, 1])
    expect(take(batch!.tensor('count')).values).toEqual([1, 2, 3, 4, 2 ** 40])
    expect(take(batch!.tensor('sum')).values).toEqual([2, -1, 4.25, 3, 17])
  })

  it('may contain nested lists, which must have the same shape in every record', () => {
    const data = examplesFrom([{ x: [[1, 2, 3]] }, { x: [[4, 5, 6]] }], {
      inputs: 'x',
      flat: { from: 'x', shape: [3], dtype: 'int32' },
    })
    expect(data.fields['inputs']).toMatchObject({ shape: [1, 3], dtype: 'float32' })
    expect(data.fields['flat']).toMatchObject({ shape: [3], dtype: 'int32' })
    expect(() => examplesFrom([{ x: [1] }, { x: [1, 2] }], { inputs: 'x' })).toThrow(
      failure('ERR_TSR_DATASET', /record 2.*shape \[2\]/),
    )
  })

  const refusals: readonly [string, string, RegExp][] = [
    ['a.csv', 'a,b,kind\n1,,x', /record 1 \(line 2\): its b is empty/],
    ['a.csv', 'a,c,kind\n1,2,x', /record 1 \(line 2\): it has no b, only a, c, kind/],
    ['a.csv', 'a;b;kind\n1;2;x', /record 1 .*: it has no a.*csvRecords\(path, ";"\)/],
    [
      'a.tsv',
      'a,b,kind\n1,2,x',
      /it has no a.*if "," separates the values.*csvRecords\(path, ","\)/,
    ],
    ['a.csv', 'a|b|kind\n1|2|x', /it has no a.*csvRecords\(path, "\|"\)/],
    ['a.csv', 'a;b;kind\n1,5;2;x', /row 2 has 2 values.*csvRecords\(path, ";"\)/],
    ['a.csv', 'a,b,kind\n1,2,"x\ny"\n1,2,z', /record 1 \(line 3\): "x\\ny" is none of/],
    ['a.csv', 'a,b,kind', /it has no records/],
    ['a.csv', 'a,b,kind\n1,two,x', /record 1 \(line 2\): "two" is not a number/],
    ['a.csv', 'a,b,kind\n1,2,z', /record 1 \(line 2\): "z" is none of x, y/],
    ['a.csv', 'a,b,kind\n1,2', /row 2 has 2 values, but there are 3/],
    ['a.csv', 'a,b,kind\n1,2,"x', /quote/],
    ['a.csv', 'a,b,kind\n1,2,"x"y', /quote.*line 2/i],
    ['a.csv', 'a,b,a,kind\n1,2,3,x', /several columns named a/],
    ['a.csv', 'a,b,kind\n1,NaN,x', /record 1 \(line 2\): "NaN" is not a number \(column b\)/],
    ['a.csv', 'a,b,kind\n1,2,x\n1,-Infinity,x', /record 2 \(line 3\): "-Infinity" is not a number/],
    ['a.csv', 'a,b,kind\n1,0x10,x', /record 1 \(line 2\): "0x10" is not a number \(column b\)/],
    [
      'a.csv',
      'a,b,kind\n1,1e400,x',
      /record 1 \(line 2\): "1e400" is not a finite number.*column b/,
    ],
    ['a.csv', 'a,b,kind\n1,1e39,x', /record 1 \(line 2\): "1e39" is not a finite number.*column b/],
    ['a.jsonl', `{"a":1}\n{"a":"${'2'.repeat(2 ** 24)}"}`, /line 2 has more than 16777216/],
    ['a.jsonl', '{"a":1,"b":2,"kind":"x"}\nnull', /line 2 is null, not an object/],
    ['a.jsonl', '[1,2]', /line 1 is .*, not an object/],
    ['a.jsonl', '7', /line 1 is 7, not an object/],
    ['a.jsonl', '{"a":[1],"b":2,"a":3}', /line 1 is an object with the key "a" twice/],
    ['a.jsonl', '{"a":{"b":"}","\\u0062":2}}', /line 1 is .* with the key "b" twice/],
    ['a.jsonl', '{"\\"a":{"b":2},"b":"b","\\"a":3}', /line 1 is .* with the key "\\"a" twice/],
    [
      'a.jsonl',
      '\n{"a":1,"b":"0b1","kind":"x"}',
      /record 1 \(line 2\): "0b1" is not a number \(column b\)/,
    ],
    ['a.jsonl', `{"a":${'['.repeat(20_000)}${']'.repeat(20_000)},"b":1}`, /nested deeper than 16/],
    ['a.jsonl', '{"constructor":1}', /it has no a, only constructor/],
    ['a.jsonl', '{"a":1,"b":2,"kind":"x"}\n{', /line 2 is not JSON/],
    ['a.parquet', 'PAR1', /a\.parquet/],
    ['a.txt', '', /\.csv, \.tsv/],
  ]
  // Contents of many megabytes make long titles, which take seconds to write.
  it.each(
    refusals.map(([name, text, message]) => ({
      name,
      text,
      message,
      start: JSON.stringify(text.slice(0, 60)),
    })),
  )('of $name with the content $start are refused', async ({ name, text, message }) => {
    const refused = failure('ERR_TSR_DATASET', message)
    await expect(readExamples(fileOf(name, text), rules)).rejects.toEqual(refused)
  })

  // In a process of its own: csv-parse uses global names for each character, which Jest looks up slowly.
  it('of a CSV file are refused if a row has more than 16 MiB', async () => {
    const path = fileOf('a.csv', `a,b,kind\n1,"${'2'.repeat(2 ** 24)}",x`)
    const { stdout } = await runModule(`
      const { readExamples } = await import(${JSON.stringify(built)})
      const reading = readExamples(${JSON.stringify(path)}, ${JSON.stringify(rules)})
      await reading.catch(({ code, message }) => console.log(code, message))`)
    expect(stdout).toMatch(/^ERR_TSR_DATASET .*record.*16777216.*line 2/i)
  })

  it.each<[string, unknown, RegExp]>([
    ['a blank text', ' ', /record 1: it has an empty value/],
    ['a date', new Date(0), /record 1: .* is not a number \(column x\)/],
    ['an object that converts itself', { valueOf: () => 7 }, /record 1: .* is not a number/],
    ['null in a list', [1, null], /record 1: it has an empty value/],
    ['ragged lists', [[1, 2, 3], [4], [5, 6]], /record 1: it has lists of different lengths/],
  ])('with %s are refused', (_, x, message) => {
    expect(() => examplesFrom([{ x }], { inputs: 'x' })).toThrow(
      failure('ERR_TSR_DATASET', message),
    )
  })

  it.each<[string, unknown, RegExp]>([
    ['NaN', NaN, /record 2: NaN is not a number \(column x\)/],
    ['a fraction', '1.5', /record 2: "1\.5" is not a whole number of 32 bits \(column x\)/],
    ['more than 32 bits', 2 ** 40, /record 2: 1099511627776 is not a whole number/],
    ['a large bigint', 2n ** 40n, /record 2: .*is not a whole number/],
    ['infinity', Infinity, /record 2: Infinity is not a whole number/],
  ])('are refused if the value of an int32 field is %s', (_, x, message) => {
    const records = [{ x: '-7' }, { x }]
    expect(() => examplesFrom(records, { labels: { from: 'x', dtype: 'int32' } })).toThrow(
      failure('ERR_TSR_DATASET', message),
    )
  })

  it.each<[string, unknown, RegExp]>([
    ['an unknown key', { from: 'x', dtpye: 'int32' }, /the rule of labels.*"dtpye".*mean dtype/],
    ['an unknown dtype', { from: 'x', dtype: 'int23' }, /dtype of the rule of labels is "int23"/],
    ['no source', { dtype: 'int32' }, /from of the rule of labels is undefined/],
    ['a class twice', { from: 'x', classes: ['a', 'a'] }, /classes of the rule of labels/],
    ['a number', 5, /from of the rule of labels is 5/],
  ])('are refused if the rule of a field is invalid: %s', (_, labels, message) => {
    expect(() => examplesFrom([{ x: 1 }], { labels: labels as 'x' })).toThrow(
      failure('ERR_TSR_ARGUMENT', message),
    )
  })

  it('are refused if the rules of fields are the wrong way round', () => {
    expect(() => examplesFrom([{ rooms: 3 }], { rooms: 'inputs' })).toThrow(
      failure('ERR_TSR_DATASET', /it has no inputs, only rooms; .*\{ inputs: 'rooms' \}/),
    )
  })

  it('of a JSON Lines file may follow a byte order mark', async () => {
    const rows: unknown[] = []
    for await (const row of jsonlRecords(fileOf('a.jsonl', '\uFEFF{"a":1}\n'))) rows.push(row)
    expect(rows).toEqual([{ a: 1 }])
  })

  it('of a JSON Lines file may be up to 16 MiB long', async () => {
    const line = JSON.stringify({ a: 'x'.repeat(2 ** 24 - 9) })
    const rows: DataRecord[] = []
    for await (const row of jsonlRecords(fileOf('a.jsonl', `${line}\r\n{"a":"y"}`))) rows.push(row)
    expect(rows.map(({ a }) => String(a).length)).toEqual([2 ** 24 - 9, 1])
  })

  it.each(['', 'NA'])('are refused if the function of a field maps %j to NaN', async (cell) => {
    const rule = { labels: ({ a }: DataRecord) => 2 * Number(a) }
    const refused = failure(
      'ERR_TSR_DATASET',
      /record 2 \(line 3\): the function of labels gives NaN/,
    )
    const path = fileOf('a.csv', `a,b\n1,2\n${cell},3`)
    await expect(readExamples(path, rule)).rejects.toEqual(refused)
  })

  it('of a file with another separator give that as the reason for NaN', async () => {
    const path = fileOf('a.csv', 'a;b\n1;2')
    const refused = failure('ERR_TSR_DATASET', /labels gives NaN.*csvRecords\(path, ";"\)/)
    const rule = { labels: ({ a }: DataRecord) => 2 * Number(a) }
    await expect(readExamples(path, rule)).rejects.toEqual(refused)
  })

  it('cannot be read from a missing file', async () => {
    const refused = failure('ERR_TSR_DATASET', /none\.csv.*: there is no \/.*\/none\.csv\./)
    await expect(readExamples('none.csv', rules)).rejects.toEqual(refused)
  })
})
