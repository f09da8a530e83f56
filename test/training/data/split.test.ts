import {
  batches,
  dataLoader,
  examples,
  loadBackend,
  randomSplit,
  subset,
  type Examples,
} from '@tsrun/training'
import { failure } from '../parallel/support/failure.ts'
import { counting } from './support/counting.ts'

beforeAll(() => loadBackend('cpu'))

const numbers = Int32Array.from({ length: 10 }, (_, i) => i)
const own = examples({ inputs: { values: numbers, dtype: 'float32' }, labels: numbers })

/** The labels of all examples, whose inputs are the same numbers. */
function labelsOf(data: Examples): number[] {
  return [...batches(data, { batch: 3, shuffle: false })].flatMap(({ inputs, labels }) => {
    const [x, y] = [inputs(), labels()]
    const [values, found] = [[...x.dataSync()], [...y.dataSync()]]
    expect(values).toEqual(found)
    x.dispose()
    y.dispose()
    return found
  })
}

describe.each<[string, Examples]>([
  ['examples', own],
  ['examples that are read on demand', counting],
])('a split of %s', (_, data) => {
  it('into a subset has the examples with the given indices, in their order', () => {
    const part = subset(data, [7, 2, 2])
    expect(part.size).toBe(3)
    expect(labelsOf(part)).toEqual([7, 2, 2])
    expect(labelsOf(subset(part, [1]))).toEqual([2])
    for (const index of [10, 1.5, NaN, 2 ** 32 + 1, -1]) {
      expect(() => subset(data, [index])).toThrow(
        failure('ERR_TSR_ARGUMENT', /index of the subset/),
      )
    }
  })

  it('at random has every example once, and is the same with the same seed', () => {
    const parts = randomSplit(data, [0.5, 0.3, 0.2], { seed: 3 })
    expect(parts.map(({ size }) => size)).toEqual([5, 3, 2])
    const labels = parts.map(labelsOf)
    expect(labels.flat().sort()).toEqual([...numbers])
    expect(randomSplit(data, [0.5, 0.3, 0.2], { seed: 3 }).map(labelsOf)).toEqual(labels)
    expect(randomSplit(data, [0.5, 0.3, 0.2], { seed: 4 }).map(labelsOf)).not.toEqual(labels)
    expect(dataLoader(parts[0], { batch: 2 }).length).toBe(3)
  })

  it.each([[[0.8, 0.3]], [[-0.1, 0.5]], [[NaN]]])(
    'into the fractions %j is refused',
    (fractions) => {
      expect(() => randomSplit(data, fractions)).toThrow(
        failure('ERR_TSR_ARGUMENT', /in all at most 1/),
      )
    },
  )
})
