import { loadBackend, record, tf, type Tensor } from '@tsrun/training'

beforeAll(() => loadBackend('wasm'))

const values = (rows: number, columns: number) =>
  tf.randomUniform([rows, columns], -1, 1, 'float32', 5)

describe('an embedding on wasm', () => {
  const ids = [3, 0, 3, 6, 3, 1]

  it.each([1, 4, 7, 130])('has its rows and its gradient, %i values wide', (columns) => {
    const table = values(7, columns)
    const indices = tf.tensor1d(ids, 'int32')
    const dy = values(ids.length, columns)
    const rows = tf.gather(table, indices)
    const lookup = tf.reshape(rows, [-1]).dataSync()
    const whole = table.dataSync()
    ids.forEach((id, row) => {
      const at = (x: ArrayLike<number>, r: number) =>
        Array.from({ length: columns }, (_, i) => x[r * columns + i])
      expect(at(lookup, row)).toEqual(at(whole, id))
    })
    const recording = record((x) => tf.gather(x, indices), table, [], {
      needsInputGradient: true,
    })
    const gradient = recording.backward(dy, () => undefined)!
    const oneHot = tf.cast(tf.oneHot(indices, 7), 'float32')
    const expected = tf.matMul(oneHot, dy, true, false)
    expect(gradient.shape).toEqual([7, columns])
    expect(tf.max(tf.abs(tf.sub(gradient, expected))).dataSync()[0]).toBeLessThan(1e-6)
  })

  it('is trained through a recording, with ids in two dimensions', () => {
    const table = { name: 'table', shape: [7, 3], value: values(7, 3) }
    const tokens = tf.tensor2d([3, 0, 3, 6], [2, 2], 'int32')
    const before = tf.memory().numTensors
    const recording = record((x) => tf.gather(table.value, x), tokens, [table], {
      needsInputGradient: false,
    })
    const dy = tf.ones([2, 2, 3])
    let gradient: Tensor | undefined
    recording.backward(dy, (_, received) => {
      gradient = received
    })
    expect([...tf.sum(gradient!, 1).dataSync()]).toEqual([3, 0, 0, 6, 0, 0, 3])
    recording.dispose()
    tf.dispose([dy, gradient!])
    expect(tf.memory().numTensors).toBe(before + 1)
  })

  it('sums segments of integers and of any rank, without those out of range', () => {
    const x = tf.tensor3d([1, 2, 3, 4, 5, 6, 7, 8], [4, 1, 2], 'int32')
    const segments = tf.tensor1d([1, -1, 1, 3], 'int32')
    const sums = tf.unsortedSegmentSum(x, segments, 3)
    expect(sums.dtype).toBe('int32')
    expect(sums.shape).toEqual([3, 1, 2])
    expect([...sums.dataSync()]).toEqual([0, 0, 6, 8, 0, 0])
  })

  it('refuses ids that do not fit', () => {
    const ids = tf.tensor1d([0, 1, 2], 'int32')
    expect(() => tf.unsortedSegmentSum(tf.ones([2, 2]), ids, 3)).toThrow('first axis')
  })
})
