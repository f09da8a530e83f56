import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import {
  batches,
  csvRecords,
  type DataRecord,
  dataLoader,
  examples,
  examplesFrom,
  loadBackend,
  mnist,
  readExamples,
  tf,
  type Tensor,
} from '@tsrun/training'
import { makeFolder, removeFolders } from '../checkpoint/support/folder.ts'
import { failure } from '../parallel/support/failure.ts'

beforeAll(() => loadBackend('wasm'))
afterEach(removeFolders)

const parquet = fileURLToPath(new URL('fixtures/points.parquet', import.meta.url))

function take(tensor: Tensor) {
  const { dtype, shape } = tensor
  const values = [...tensor.dataSync()]
  tensor.dispose()
  return { dtype, shape, values }
}

function fileOf(name: string, text: string): string {
  const path = join(makeFolder(), name)
  writeFileSync(path, text)
  return path
}

describe('examples', () => {
  it('are tensors of any shape and dtype, by name', () => {
    const before = tf.memory().numTensors
    const data = examples({
      inputs: {
        values: Uint8Array.from({ length: 12 }, (_, i) => i),
        shape: [2, 2],
        scale: 0.5,
        shift: -1,
      },
      labels: [0.5, 1.5, 2.5],
      mask: { values: [1, 0, 1], dtype: 'bool' },
      kind: Int32Array.of(7, 8, 9),
    })
    expect(data.size).toBe(3)
    const [first, second] = [...batches(data, { batch: 2, shuffle: false })]
    expect(take(first!.inputs())).toEqual({
      dtype: 'float32',
      shape: [2, 2, 2],
      values: [-1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5],
    })
    expect(take(first!.labels())).toEqual({ dtype: 'float32', shape: [2], values: [0.5, 1.5] })
    expect(take(second!.tensor('mask'))).toEqual({ dtype: 'bool', shape: [1], values: [1] })
    expect(take(second!.tensor('kind'))).toEqual({ dtype: 'int32', shape: [1], values: [9] })
    expect(tf.memory().numTensors).toBe(before)
    expect(() => first!.tensor('kinds')).toThrow(
      failure('ERR_TSR_ARGUMENT', /inputs, labels, mask, kind/),
    )
  })

  it('go through a loader, in shares', () => {
    const data = examples({ inputs: [10, 11, 12, 13, 14], labels: [0, 1, 2, 3, 4] })
    const seen = [0, 1].flatMap((rank) => {
      const loader = dataLoader(data, { batch: 2, share: [rank, 2] })
      return [...loader].flatMap(({ labels }) => take(labels()).values)
    })
    expect(seen.sort()).toEqual([0, 1, 2, 3, 4])
  })

  it('have as many values in each column', () => {
    expect(() => examples({ inputs: [1, 2, 3], labels: [1, 2] })).toThrow(
      failure('ERR_TSR_ARGUMENT', /labels.*2 values/),
    )
    expect(() => examples({ inputs: { values: [1, 2, 3], shape: [2] } })).toThrow(
      failure('ERR_TSR_ARGUMENT', /inputs.*3 values of shape \[2\]/),
    )
    expect(() => examples({})).toThrow(failure('ERR_TSR_ARGUMENT', /columns/))
  })

  it('of a Dataset are inputs and labels', () => {
    const [batch] = [...batches(mnist({ split: 'test' }), { batch: 2, shuffle: false })]
    expect(take(batch!.tensor('labels')).values).toEqual([7, 2])
    expect(() => batch!.tensor('images')).toThrow(failure('ERR_TSR_ARGUMENT', /images/))
  })
})

it.each<[string, unknown, RegExp]>([
  ['nested lists', [[1, 2]], /the column inputs is a list of an array.*expected numbers/],
  ['a tensor', { dataSync: () => [] }, /the column inputs is .*await tensor\.data\(\)/],
])('a column is refused: %s', (_, inputs, message) => {
  expect(() => examples({ inputs: inputs as number[] })).toThrow(
    failure('ERR_TSR_ARGUMENT', message),
  )
})

describe('records', () => {
  const rules = { inputs: ['a', 'b'], labels: { from: 'kind', classes: ['x', 'y'] } } as const

  it('of a CSV file have quoted values, in any of its forms', async () => {
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
  ])('of %s become fields', async (name, text) => {
    const data = await readExamples(fileOf(name, text), rules)
    const [batch] = [...batches(data, { batch: 2, shuffle: false })]
    expect(take(batch!.inputs())).toEqual({
      dtype: 'float32',
      shape: [2, 2],
      values: [1, 2, 3, 4.5],
    })
    expect(take(batch!.labels())).toEqual({ dtype: 'int32', shape: [2], values: [1, 0] })
  })

  it('of a Parquet file become fields', async () => {
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

  it('have lists of any depth, of the same shape', () => {
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

  it.each<[string, string, RegExp]>([
    ['a.csv', 'a,b,kind\n1,,x', /record 1: its b is empty/],
    ['a.csv', 'a,c,kind\n1,2,x', /record 1: it has no b, only a, c, kind/],
    ['a.csv', 'a;b;kind\n1;2;x', /record 1: it has no a.*csvRecords\(path, ';'\)/],
    ['a.csv', 'a,b,kind', /it has no records/],
    ['a.csv', 'a,b,kind\n1,two,x', /record 1: "two" is not a number/],
    ['a.csv', 'a,b,kind\n1,2,z', /record 1: "z" is none of x, y/],
    ['a.csv', 'a,b,kind\n1,2', /row 2 has 2 values, but there are 3/],
    ['a.csv', 'a,b,kind\n1,2,"x', /quote/],
    ['a.jsonl', '{"a":1,"b":2,"kind":"x"}\n{', /line 2 is not JSON/],
    ['a.parquet', 'PAR1', /a\.parquet/],
    ['a.txt', '', /\.csv, \.tsv/],
  ])('of %s that say %j are refused', async (name, text, message) => {
    const refused = failure('ERR_TSR_DATASET', message)
    await expect(readExamples(fileOf(name, text), rules)).rejects.toEqual(refused)
  })

  it.each<[string, unknown, RegExp]>([
    ['a blank text', ' ', /record 1: it has an empty value/],
    ['null in a list', [1, null], /record 1: it has an empty value/],
    ['ragged lists', [[1, 2, 3], [4], [5, 6]], /record 1: it has lists of different lengths/],
  ])('with %s are refused', (_, x, message) => {
    expect(() => examplesFrom([{ x }], { inputs: 'x' })).toThrow(
      failure('ERR_TSR_DATASET', message),
    )
  })

  it.each(['', 'NA'])('that a function makes no number of are refused: %j', async (cell) => {
    const rule = { labels: ({ a }: DataRecord) => 2 * Number(a) }
    const refused = failure('ERR_TSR_DATASET', /record 2: the function of a field gives NaN/)
    const path = fileOf('a.csv', `a,b\n1,2\n${cell},3`)
    await expect(readExamples(path, rule)).rejects.toEqual(refused)
  })

  it('of a file that is missing are refused', async () => {
    const refused = failure('ERR_TSR_DATASET', /none\.csv.*ENOENT/)
    await expect(readExamples('none.csv', rules)).rejects.toEqual(refused)
  })
})
