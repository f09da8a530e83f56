import { batches, dataLoader, examples, loadBackend, mnist, tf } from '@tsrun/training'
import { failure } from '../parallel/support/failure.ts'
import { take } from './support/take.ts'

beforeAll(() => loadBackend('wasm'))

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

  it.each([
    Int8Array,
    Int16Array,
    Int32Array,
    Uint8Array,
    Uint8ClampedArray,
    Uint16Array,
    Uint32Array,
  ])('from a %p are int32 tensors, or float32 if they are scaled', (Integers) => {
    const data = examples({
      inputs: { values: Integers.of(0, 2, 4), scale: 0.25 },
      labels: Integers.of(2, 1, 0),
    })
    const [batch] = [...batches(data, { batch: 3, shuffle: false })]
    expect(take(batch!.inputs())).toEqual({ dtype: 'float32', shape: [3], values: [0, 0.5, 1] })
    expect(take(batch!.labels())).toEqual({ dtype: 'int32', shape: [3], values: [2, 1, 0] })
  })

  it('from a Float32Array may contain infinities, as masks do', () => {
    const data = examples({ inputs: Float32Array.of(0, -Infinity) })
    const [batch] = [...batches(data, { batch: 2, shuffle: false })]
    expect(take(batch!.inputs()).values).toEqual([0, -Infinity])
  })

  it('are divided among the ranks by a data loader', () => {
    const data = examples({ inputs: [10, 11, 12, 13, 14], labels: [0, 1, 2, 3, 4] })
    const seen = [0, 1].flatMap((rank) => {
      const loader = dataLoader(data, { batch: 2, share: [rank, 2] })
      return [...loader].flatMap(({ labels }) => take(labels()).values)
    })
    expect(seen.sort()).toEqual([0, 1, 2, 3, 4])
  })

  it('are refused if their columns have different numbers of rows', () => {
    expect(() => examples({ inputs: [1, 2, 3], labels: [1, 2] })).toThrow(
      failure('ERR_TSR_ARGUMENT', /labels.*2 values/),
    )
    expect(() => examples({ inputs: { values: [1, 2, 3], shape: [2] } })).toThrow(
      failure('ERR_TSR_ARGUMENT', /inputs.*3 values of shape \[2\]/),
    )
    expect(() => examples({})).toThrow(failure('ERR_TSR_ARGUMENT', /columns/))
  })

  it('without the fields that a batch needs are refused with their names', () => {
    const [batch] = [...batches(examples({ x: [1], y: [2] }), { batch: 1 })]
    expect(() => batch!.inputs()).toThrow(
      failure(
        'ERR_TSR_ARGUMENT',
        /set of fields of the examples is \{ x, y \}; expected one with inputs/,
      ),
    )
  })

  it('of MNIST have the fields inputs and labels only', () => {
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

const bare = { values: new Float32Array(2) }
it.each<[string, unknown, RegExp]>([
  ['an unknown key', { ...bare, scael: 2 }, /column labels.*"scael".*did you mean scale/],
  ['an unknown key before the number of values', { ...bare, shpae: [2] }, /"shpae".*mean shape/],
  ['an unknown dtype', { ...bare, dtype: 'int23' }, /dtype of the column labels is "int23"/],
  ['a dtype without tensors', { ...bare, dtype: 'uint8' }, /dtype of the column labels is "uint8"/],
  ['a shape that is not a list', { ...bare, shape: 2 }, /shape of the column labels is 2/],
  ['a scale that is NaN', { ...bare, scale: NaN }, /scale of the column labels is NaN/],
  ['a shift that is not a number', { ...bare, shift: '1' }, /shift of the column labels is "1"/],
  [
    'a field of an unknown dtype',
    { shape: [], dtype: 'uint8', read: () => undefined },
    /dtype.*"uint8"/,
  ],
  [
    'a scale that its function would not apply',
    { shape: [], dtype: 'float32', read: () => undefined, scale: 2 },
    /column labels.*"scale"/,
  ],
  ['NaN in a list', [1, NaN], /column labels is NaN at index 1; expected a finite number/],
  ['a text in a list', [1, '2'], /column labels is a list of "2" at index 1/],
  ['a hole in a list', [1, undefined], /column labels is a list of undefined at index 1/],
  ['NaN as int32', { values: [0, NaN], dtype: 'int32' }, /NaN at index 1.*dtype is int32/],
  ['1.5 as int32', { values: Float32Array.of(0, 1.5), dtype: 'int32' }, /1\.5 at index 1/],
  ['2^40 as int32', { values: Float64Array.of(2 ** 40, 0), dtype: 'int32' }, /1099511627776 at/],
  ['2^31 as int32', Uint32Array.of(0, 2 ** 31), /2147483648 at index 1/],
  [
    'a fraction by scale',
    { values: Uint8Array.of(0, 1), dtype: 'int32', scale: 0.5 },
    /1 at index 1/,
  ],
  ['1e300 as float32', Float64Array.of(-Infinity, 1e300), /1e\+300 at index 1.*float32/],
  ['2 as bool', { values: [1, 2], dtype: 'bool' }, /2 at index 1; expected 0 or 1/],
  ['bigints', BigInt64Array.of(1n, 2n), /column labels is a list of/],
])('a column is refused with %s', (_, labels, message) => {
  const columns = { labels: labels as number[] }
  expect(() => examples(columns, 2)).toThrow(failure('ERR_TSR_ARGUMENT', message))
})
