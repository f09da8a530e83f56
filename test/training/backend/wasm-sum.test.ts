import { loadBackend, tf } from '@tsrun/training'

const shape = [5, 3, 4] as const
const size = 60
const values = Float32Array.from({ length: size }, (_, i) => Math.sin(i) * 10 ** (i % 5))

beforeAll(() => loadBackend('wasm'))

describe('sums on wasm', () => {
  it.each([
    { axes: [0], keepDims: false },
    { axes: [0, 1], keepDims: false },
    { axes: [1, 0], keepDims: true },
    { axes: [0, 1, 2], keepDims: false },
    { axes: [1], keepDims: false },
    { axes: [-1], keepDims: true },
    { axes: undefined, keepDims: false },
  ])('over $axes are those of double precision, keepDims $keepDims', ({ axes, keepDims }) => {
    const over = (axes ?? [0, 1, 2]).map((axis) => (axis + 3) % 3)
    const kept = shape.map((extent, axis) => (over.includes(axis) ? 1 : extent))
    const wanted = new Float64Array(kept.reduce<number>((product, extent) => product * extent, 1))
    values.forEach((value, i) => {
      const place = [Math.floor(i / 12), Math.floor(i / 4) % 3, i % 4]
      const at = place.reduce(
        (index, p, axis) => index * kept[axis]! + (kept[axis] === 1 ? 0 : p),
        0,
      )
      wanted[at]! += value
    })
    const before = tf.memory().numTensors
    const x = tf.tensor(values, [...shape])
    const sum = tf.sum(x, axes, keepDims)
    expect(sum.shape).toEqual(keepDims ? kept : kept.filter((_, axis) => !over.includes(axis)))
    sum.dataSync().forEach((value, i) => {
      expect(Math.abs(value - wanted[i]!)).toBeLessThan(2e-3)
    })
    tf.dispose([x, sum])
    expect(tf.memory().numTensors).toBe(before)
  })

  it('stay as they were for whole numbers, and for nothing at all', () => {
    const whole = tf.sum(tf.tensor2d([1, 2, 3, 4], [2, 2], 'int32'), 0)
    expect([whole.dtype, ...whole.dataSync()]).toEqual(['int32', 4, 6])
    expect([...tf.sum(tf.zeros([0, 3]), 0).dataSync()]).toEqual([0, 0, 0])
  })
})
