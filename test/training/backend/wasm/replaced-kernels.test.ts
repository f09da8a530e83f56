import type { Tensor4D } from '@tensorflow/tfjs-core'
import { loadBackend, record, tf, type Tensor } from '@tsrun/training'

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
  ])('over $axes have double precision, keepDims $keepDims', ({ axes, keepDims }) => {
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

  it('are correct for integers and for empty tensors', () => {
    const whole = tf.sum(tf.tensor2d([1, 2, 3, 4], [2, 2], 'int32'), 0)
    expect([whole.dtype, ...whole.dataSync()]).toEqual(['int32', 4, 6])
    expect([...tf.sum(tf.zeros([0, 3]), 0).dataSync()]).toEqual([0, 0, 0])
  })
})

const randomValues = (rows: number, columns: number) =>
  tf.randomUniform([rows, columns], -1, 1, 'float32', 5)

describe('an embedding on wasm', () => {
  const ids = [3, 0, 3, 6, 3, 1]

  it.each([1, 4, 7, 130])('has the correct rows and gradient at a width of %i', (columns) => {
    const table = randomValues(7, columns)
    const indices = tf.tensor1d(ids, 'int32')
    const dy = randomValues(ids.length, columns)
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

  it('gathers slices of any rank, and refuses ids out of range', () => {
    const x = tf.tensor3d([1, 2, 3, 4, 5, 6, 7, 8], [4, 1, 2])
    const of = (ids: Tensor, axis?: number) => {
      const slices = tf.gather(x, ids, axis)
      return [slices.shape, [...slices.dataSync()]]
    }
    expect(of(tf.tensor2d([[3, 0]], [1, 2], 'int32'))).toEqual([
      [1, 2, 1, 2],
      [7, 8, 1, 2],
    ])
    expect(of(tf.scalar(2, 'int32'))).toEqual([
      [1, 2],
      [5, 6],
    ])
    expect(of(tf.tensor1d([1], 'int32'), 2)).toEqual([
      [4, 1, 1],
      [2, 4, 6, 8],
    ])
    expect([...tf.gather(tf.tensor1d([4, 5, 6], 'int32'), [2, 0]).dataSync()]).toEqual([6, 4])
    for (const id of [-1, 4]) {
      expect(() => of(tf.tensor1d([id], 'int32'))).toThrow(
        `the index value ${String(id)} is not in`,
      )
    }
  })

  it('can be recorded with ids in two dimensions', () => {
    const table = { name: 'table', shape: [7, 3], value: randomValues(7, 3) }
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

  it('sums segments of integers and of any rank, and ignores ids out of range', () => {
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

describe('special inputs on wasm', () => {
  const none = () => tf.zeros([0, 4])
  const empty: Record<string, () => Tensor> = {
    all: () => tf.all(tf.cast(none(), 'bool'), 0),
    any: () => tf.any(tf.cast(none(), 'bool')),
    argMax: () => tf.argMax(none(), 0),
    max: () => tf.max(none()),
    'max along an axis': () => tf.max(none(), 0),
    mean: () => tf.mean(none()),
    min: () => tf.min(none(), 0),
    prod: () => tf.prod(none()),
    reverse: () => tf.reverse(none()),
    sum: () => tf.sum(none()),
    'sum of whole numbers': () => tf.sum(tf.cast(none(), 'int32')),
    matMul: () => tf.matMul(tf.zeros([3, 0]), tf.zeros([0, 2])),
    'matMul with a bias': () =>
      tf.fused.matMul({ a: tf.zeros([3, 0]), b: tf.zeros([0, 2]), bias: tf.ones([2]) }),
  }
  const images = () => tf.tensor4d([1, NaN, -2, 9, 0, 5, 7, -8], [1, 2, 4, 1])
  const filter = () => tf.tensor4d([1, 2, 3, 4], [2, 2, 1, 1])
  /** Images of five channels, in which some windows of 2 x 2 have several largest values. */
  const channels = () => {
    const numbers = Float32Array.from({ length: 160 }, (_, i) => ((7 * i * i) % 11) - 8)
    return tf.tensor4d(numbers, [2, 4, 4, 5])
  }
  const pool = (x: Tensor) => tf.maxPool(x as Tensor4D, 2, 2, 'valid')
  const special: Record<string, () => Tensor> = {
    'maxPool of several channels': () => pool(channels()),
    'maxPool of several channels with NaN': () =>
      pool(tf.where(tf.equal(channels(), -1), NaN, channels())),
    'the gradient of maxPool of several channels': () => tf.grad(pool)(channels()),
    'clipByValue of NaN': () => tf.clipByValue(images(), -1, 6),
    'clipByValue of whole numbers': () => tf.clipByValue(tf.tensor1d([-9, 2, 9], 'int32'), -1, 6),
    'relu6 of NaN': () => tf.relu6(images()),
    'maxPool of NaN': () => tf.maxPool(images(), 2, 1, 'same'),
    'avgPool of NaN': () => tf.avgPool(images(), 2, 1, 'same'),
    'maxPool of whole numbers': () =>
      tf.maxPool(tf.tensor4d([1, 2, 3, 4], [1, 2, 2, 1], 'int32'), 2, 1, 'same'),
    'maximum of NaN': () => tf.maximum(0.5, images()),
    'minimum of NaN': () => tf.minimum(0.5, images()),
    'a cast of floats to bool': () => tf.cast(tf.tensor1d([0.5, -0.1, 256, NaN, 0]), 'bool'),
    'a cast of whole numbers to bool': () => tf.cast(tf.tensor1d([256, 2, 0], 'int32'), 'bool'),
    'reverse of bools': () => tf.reverse(tf.tensor1d([true, false, false], 'bool')),
    'unsortedSegmentSum of bools': () =>
      tf.unsortedSegmentSum(tf.tensor1d([true, false, true], 'bool'), tf.tensor1d([1, 1, 1], 'int32'), 2), // prettier-ignore
    'stridedSlice of whole numbers': () =>
      tf.stridedSlice(tf.tensor1d([5, 6, 7], 'int32'), [0], [3], [2]),
    'prelu with a slope for each row': () =>
      tf.prelu(tf.fill([2, 3, 4], -1), tf.tensor3d([1, 2, 3], [1, 3, 1])),
    'prelu with one slope': () => tf.prelu(tf.fill([2, 3], -1), tf.tensor1d([0.5])),
    ...Object.fromEntries(
      (['elu', 'leakyrelu', 'relu6', 'sigmoid'] as const).map((activation) => [
        `fused.matMul with a transpose and ${activation}`,
        () =>
          tf.fused.matMul({
            a: tf.tensor2d([1, -2, 3, 4, 5, -6], [3, 2]),
            b: tf.tensor2d([1, 2, -3, 4, 5, 6], [2, 3]),
            bias: tf.tensor1d([-1, 1]),
            transposeA: true,
            transposeB: true,
            activation,
          }),
      ]),
    ),
    'depthwiseConv2d of NaN': () => tf.depthwiseConv2d(images(), filter(), 1, 'same'),
    ...Object.fromEntries(
      (['relu', 'relu6', 'elu'] as const).flatMap((activation) =>
        (['depthwiseConv2d', 'conv2d'] as const).map((name) => [
          `fused.${name} of NaN with ${activation}`,
          () =>
            tf.fused[name]({
              x: images(),
              filter: filter(),
              strides: 1,
              pad: 'same',
              bias: tf.tensor1d([0.5]),
              activation,
            }),
        ]),
      ),
    ),
    'fused.depthwiseConv2d of NaN with relu, without a bias': () =>
      tf.fused.depthwiseConv2d({
        x: images(),
        filter: filter(),
        strides: 1,
        pad: 'same',
        activation: 'relu',
      }),
  }

  it.each(Object.keys({ ...empty, ...special }))('%s has the result of cpu', async (name) => {
    const compute = { ...empty, ...special }[name]!
    const results: unknown[] = []
    for (const backend of ['cpu', 'wasm'] as const) {
      await loadBackend(backend)
      const { dtype, shape } = tf.tidy(compute)
      // Memory of earlier tensors would show in a result that is not written.
      tf.tidy(() => tf.fill([64], 3))
      // Rounded, and without the sign of 0.
      const found = tf.tidy(() => Array.from(compute().dataSync(), (x) => Number(x.toFixed(4)) + 0))
      results.push({ dtype, shape, found })
    }
    expect(results[1]).toEqual(results[0])
  })
})
